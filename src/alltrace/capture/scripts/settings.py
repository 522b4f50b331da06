"""What a job script is made from: every setting of job.toml as an option, and the reader of that file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from alltrace.capture.options import BY_NAME, LINE, LINE_EXPECTED, WORD, WORD_EXPECTED
from alltrace.trace.errors import InputError, UsageError
from alltrace.trace.options import Option

_TEXTS = {
    "name": (re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?"), "up to 40 small letters, digits and hyphens"),
    "url": (
        re.compile(r"(s3|gs|gcs|abfs|az|file|memory)://[^\s'\"\\$`]+"),
        "a URL such as s3://bucket/folder or gs://bucket/folder",
    ),
    "size": (re.compile(r"[0-9]{1,15}[KMGkmg]?"), "a size such as 8 or 2G"),
    "quantity": (re.compile(r"[0-9]{1,9}(Ki|Mi|Gi|Ti)?"), "a quantity such as 64Gi"),
    "word": (WORD, WORD_EXPECTED),
    "line": (LINE, LINE_EXPECTED),
    "path": (LINE, "a path"),
    "lines": (re.compile(r"[^\x00-\x08\x0b-\x1f\x7f]*"), "text"),
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST = 10**9 - 1


def _section(section: str, *rows: tuple[str, str, Any, str] | str) -> tuple[Option, ...]:
    """The settings of a section: key, kind, default and help; or the name of an option of `capture exec`."""
    # A kind is `flag`, `count` (a whole number from 1 up), `whole` (from 0 up), `words` (a list of text), `table`
    # (names to text), a `|`-separated list of choices, or one of `_TEXTS`.
    return tuple(_of_command(BY_NAME[r]) if isinstance(r, str) else _setting(f"{section}.{r[0]}", *r[1:]) for r in rows)


def _setting(name: str, kind: str, default: Any, about: str) -> Option:
    if kind in ("count", "whole"):
        least = 1 if kind == "count" else 0
        return Option(name, int, default, about, least=least, most=_MOST, expected=f"a whole number of {least} or more")
    if kind in ("flag", "words", "table"):
        kinds = {
            "flag": (bool, "true or false"),
            "words": (list, 'a list of text, such as ["python", "train.py"]'),
            "table": (dict, "names with text"),
        }
        return Option(name, kinds[kind][0], default, about, expected=kinds[kind][1])
    if "|" in kind:
        return Option(name, str, default, about, tuple(kind.split("|")))
    pattern, expected = _TEXTS[kind]
    return Option(name, str, default, about, pattern=pattern, expected=expected)


def _of_command(option: Option) -> Option:
    """An option of `capture exec` as a setting: one that may be missing is 0 or empty."""
    about = option.key_help or option.help
    if option.type is int:
        kind = "whole" if option.default is None or not option.least else "count"
        return _setting(option.key, kind, option.default or 0, about)
    if option.type in (bool, list):
        return _setting(option.key, "flag" if option.type is bool else "words", option.default, about)
    return option._replace(name=option.key, type=str, default=option.default or "", help=about)


# fmt: off
SETTINGS: tuple[Option, ...] = (
    *_section(
        "job",
        ("name", "name", "profiled", "the job's name"),
        ("nodes", "count", 2, "number of nodes or pods"),
        ("ranks_per_node", "count", 8, "ranks per node; each has a GPU"),
        ("minutes", "count", 60, "the time limit, for a batch system"),
        ("output", "path", "reports", "the folder for reports and NCCL logs; every job has its own folder in it"),
        ("setup", "lines", "", "shell commands to run first, such as module load"),
        ("port", "count", 29500, "where the ranks of torchrun meet"),
    ),
    *_section(
        "workload",
        ("kind", "command|nccl-tests|fsdp|megatron|nemo", "command", "what is run"),
        ("command", "words", ["python", "train.py"], "the program and its arguments, one word per item"),
        ("script", "path", "",
            "the script; default: train.py, pretrain_gpt.py (megatron), megatron_gpt_pretraining.py (nemo)"),
        ("arguments", "words", [], "more arguments for the program"),
        ("launch", "auto|ranks|torchrun", "auto", "the launcher starts one process per rank, or torchrun on each node"),
        ("tests", "words", ["all_reduce_perf"], "which nccl-tests to run, one after the other"),
        ("tests_folder", "path", "", "the folder of the nccl-tests; default: on PATH"),
        ("min_bytes", "size", "8", "the smallest message of nccl-tests"),
        ("max_bytes", "size", "2G", "the largest message of nccl-tests"),
        ("iterations", "count", 20, "iterations of nccl-tests for each size"),
    ),
    *_section(
        "profiler", "profiler", "ranks", "per_node", "cutoff", "steps", "delay", "duration", "capture_range", "trace",
        "sample", "gpu_metrics", "nic_metrics", "efa", "kernels", "metric_set", "launch_skip", "launch_count", "tmp",
        ("path", "path", "", "the profiler or its folder; default: on PATH"),
        "profiler_arg",
        ("wrapper", "alltrace|shell", "alltrace", "shell if the ranks have no Python with alltrace"),
    ),
    *_section(
        "nccl",
        ("log", "flag", False,
            "whether NCCL writes a log, one file per process: about 170 bytes for each call of each rank"),
        ("debug", "VERSION|WARN|INFO|TRACE", "INFO", "how much it says"),
        ("subsystems", "word", "INIT,ENV,COLL,P2P,NET,GRAPH,TUNING,NVLS",
            "what NCCL logs; INIT is needed to know the ranks"),
        ("window", "flag", False,
            "whether only profiled ranks write it, and keep only the calls in profiler.steps; NCCL 2.26"),
        ("timestamps", "flag", True, "the time on every line; NCCL 2.26 and later"),
        ("inspector", "path", "",
            "NCCL Inspector's library, such as libnccl-profiler-inspector.so, to record each collective; NCCL 2.28"),
        ("inspector_interval_us", "count", 500_000,
            "how often Inspector empties its buffers, each of which holds 1,024 operations"),
    ),
    _setting("environment", "table", {}, "environment variables of every rank"),
    *_section(
        "upload",
        ("url", "url", "",
            "where to copy the reports when the job ends, such as s3://bucket/folder or gs://bucket/folder"),
    ),
    *_section(
        "slurm",
        ("partition", "word", "", "the partition"),
        ("account", "word", "", "the account"),
        ("qos", "word", "", "the quality of service"),
        ("gpus", "whole", 0, "GPUs per node; 0 for as many as ranks"),
        ("cpus_per_rank", "whole", 0, "processors per rank; 0 for the default"),
        ("exclusive", "flag", True, "whether to share nodes with no other job"),
        ("mpi", "word", "", "the value of srun --mpi; default: pmix for nccl-tests"),
        ("arguments", "words", [], "more #SBATCH lines, such as --constraint=h100"),
        ("srun", "words", [], "more arguments for srun"),
        ("container_image", "line", "", "the image, for slurm-pyxis"),
        ("container_mounts", "words", [], "more mounts SOURCE:TARGET, for slurm-pyxis"),
    ),
    *_section(
        "pbs",
        ("queue", "word", "", "the queue"),
        ("account", "word", "", "the project"),
        ("select", "word", "", "what follows select=NODES, such as system=polaris"),
        ("filesystems", "word", "", "the file systems, such as home:eagle"),
        ("place", "word", "scatter", "how to place the chunks"),
        ("arguments", "words", [], "more #PBS lines, such as -l debug=true"),
    ),
    *_section(
        "mpi",
        ("launcher", "auto|openmpi|mpich|intel|pals", "auto",
            "the implementation of mpiexec; default: openmpi, and pals for pbs"),
        ("hostfile", "path", "", "the file of hosts"),
        ("arguments", "words", [], "more arguments for mpirun or mpiexec"),
    ),
    *_section(
        "image",
        ("base", "word", "nvcr.io/nvidia/pytorch:25.06-py3", "the image that Nsight is added to"),
        ("nsight_systems", "word", "nsight-systems-cli",
            "the package of Nsight Systems; add =VERSION for a fixed version"),
        ("nsight_compute", "word", "",
            "the package of Nsight Compute, such as nsight-compute-2025.3.0; empty for none"),
        ("alltrace", "line", "alltrace-*.whl",
            "the wheel of alltrace in the folder of the Dockerfile; or what pip installs, such as git+ADDRESS; "
            "empty for none"),
        ("mpi", "flag", False, "whether to install Open MPI and an SSH server"),
        ("efa", "word", "", "also install the EFA software in this version, such as 1.43.1"),
        ("nccl_tests", "word", "", "also install nccl-tests in this version, such as v2.19.6"),
    ),
    *_section(
        "kubernetes",
        ("image", "word", "", "the image, with nsys and alltrace in it (`capture script docker` makes one)"),
        ("namespace", "name", "default", "the namespace"),
        ("claim", "name", "", "the PersistentVolumeClaim for the reports"),
        ("mount", "path", "/reports", "where the claim is mounted"),
        ("secret", "name", "", "a Secret with environment variables, such as the keys for the upload"),
        ("pull_secret", "name", "", "the Secret to pull the image with"),
        ("service_account", "name", "", "the ServiceAccount"),
        ("gpu_resource", "word", "nvidia.com/gpu", "the resource name of a GPU"),
        ("efa", "whole", 0, "EFA adapters per pod"),
        ("shared_memory", "quantity", "64Gi", "the size of /dev/shm"),
        ("grace_seconds", "count", 600,
            "how long a pod may take to finish its reports when it is stopped; 30 would cut them short"),
        ("inject", "none|injector|operator", "none",
            "label pods for devtools-sidecar-injector or Nsight Operator, instead of using the wrapper"),
        ("nodes", "table", {}, "labels that nodes must have"),
    ),
    *_section(
        "injector",
        ("chart", "word", "1.0.7", "the chart version of devtools-sidecar-injector"),
        ("match", "line", "",
            "a regular expression for the whole command line to profile; default: derived from the program"),
        ("size", "quantity", "20Gi", "space for reports if there is no claim"),
        ("image", "word", "", "the image with nsys, such as of an own registry; default: the chart's"),
        ("pull_policy", "default|Always|IfNotPresent|Never", "default", "when the image with nsys is pulled"),
    ),
    *_section(
        "operator",
        ("chart", "word", "26.2.1", "the chart version of Nsight Operator"),
        ("match", "line", "", "a regular expression for the command to profile; default: derived from the program"),
    ),
)
# fmt: on
_BY_NAME = {s.name: s for s in SETTINGS}
_SECTIONS = tuple(dict.fromkeys(s.name.partition(".")[0] for s in SETTINGS))


class Job:
    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {s.name: s.default for s in SETTINGS}
        self.given: frozenset[str] = frozenset(values or ())
        for name, value in (values or {}).items():
            self._values[name] = checked(_BY_NAME[name], value)
        if self.steps is not None and self.steps[1] <= self.steps[0]:
            steps = self.text("profiler.steps")
            raise UsageError(
                f"profiler.steps is {steps}, which contains no step; the second number is the step after the last"
            )

    def value(self, name: str) -> Any:
        return self._values[name]

    def text(self, name: str) -> str:
        """A setting that is text; empty if it is missing and has no default."""
        return str(self._values[name])

    def number(self, name: str) -> int:
        return int(self._values[name])

    def flag(self, name: str) -> bool:
        return bool(self._values[name])

    def words(self, name: str) -> list[str]:
        return list(self._values[name])

    def table(self, name: str) -> dict[str, str]:
        return dict(self._values[name])

    def sections(self) -> dict[str, Any]:
        sections: dict[str, Any] = {}
        for name, value in self._values.items():
            section, _, key = name.partition(".")
            sections.setdefault(section, {}).update({key: value} if key else value)
        return sections

    def having(self, **changes: Any) -> Job:
        """The same job with other values; `__` replaces the dot in a name."""
        values = {n: self._values[n] for n in self.given}
        return Job({**values, **{n.replace("__", "."): v for n, v in changes.items()}})

    @property
    def world_size(self) -> int:
        return self.number("job.nodes") * self.number("job.ranks_per_node")

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first step that is recorded and the one after the last; None if none are named."""
        first, _, end = self.text("profiler.steps").partition(":")
        return (int(first), int(end)) if first else None

    def as_toml(self) -> str:
        lines = []
        for section in _SECTIONS:
            lines += ["", f"[{section}]"]
            for setting in (s for s in SETTINGS if s.name.partition(".")[0] == section):
                value, key = self._values[setting.name], setting.name.partition(".")[2]
                if key:
                    choices = f" ({', '.join(setting.choices)})" if setting.choices else ""
                    lines += [f"# {setting.help}{choices}", f"{key} = {_toml(value)}"]
                else:
                    lines += [f'# {setting.help}: NAME = "text"', *(f"{n} = {_toml(v)}" for n, v in value.items())]
        return "\n".join(lines).lstrip("\n") + "\n"


def checked(setting: Option, value: Any) -> Any:
    value, name = setting.checked(value, setting.name), setting.name
    if setting.type is list and not all(isinstance(v, str) and "\0" not in v for v in value):
        setting.refuse(value, name)
    if setting.type is not dict:
        return value
    for key, text in value.items():
        if name == "environment" and not _VARIABLE.fullmatch(key):
            raise UsageError(
                f"{name}.{key} is {key!r}; expected the name of a variable: letters, digits and underscores"
            )
        if isinstance(text, bool) or not isinstance(text, (str, int, float)) or "\0" in str(text):
            raise UsageError(f"{name}.{key} is {text!r}; expected text")
    return {key: str(text) for key, text in value.items()}


def read_job(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected="a job.toml") from error
    except (ValueError, RecursionError) as error:
        advice = "`alltrace capture script --show-config` writes one"
        raise InputError(path, found=f"it is not valid TOML ({error})", advice=advice) from error
    try:
        settings = flatten(document)
        for name, value in settings.items():
            checked(_BY_NAME[name], value)
    except UsageError as error:
        raise InputError(path, found=str(error)) from error
    return settings


def flatten(document: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for section, content in document.items():
        if section not in _SECTIONS:
            keys = [s.name for s in SETTINGS if s.name.endswith(f".{section}")]
            where = f"; {section} belongs to [{keys[0].partition('.')[0]}]" if keys else ""
            raise UsageError(f"{UsageError.unknown('section', section, _SECTIONS)}{where}")
        if section in _BY_NAME:
            settings[section] = content
            continue
        if not isinstance(content, dict):
            raise UsageError(f"{section} is {content!r}; expected a table: [{section}]")
        for key, value in content.items():
            find_setting(f"{section}.{key}")
            settings[f"{section}.{key}"] = value
    return settings


def find_setting(name: str) -> Option:
    if name not in _BY_NAME:
        raise UsageError.unknown("setting", name, _nearby(name))
    return _BY_NAME[name]


def _nearby(name: str) -> Iterable[str]:
    """The settings of the same section, or settings with the same key elsewhere, or all."""
    section, _, key = name.partition(".")
    elsewhere = [s.name for s in SETTINGS if s.name.endswith(f".{key}")]
    return elsewhere or [s.name for s in SETTINGS if s.name.startswith(f"{section}.")] or list(_BY_NAME)


def parse_assignment(text: str) -> tuple[str, Any]:
    """`SECTION.KEY=VALUE` as a name and its value; the value as in TOML, or plain text."""
    name, equals, value = text.partition("=")
    section, dot, _ = name.partition(".")
    if not equals or not dot:
        raise UsageError(f"--set is {text!r}; expected SECTION.KEY=VALUE, such as job.nodes=4")
    if section == "environment":
        return name, value
    setting = find_setting(name)
    if setting.type is not str:
        try:
            return name, tomllib.loads(f"value = {value}")["value"]
        except (ValueError, RecursionError):
            return name, [value] if setting.type is list else value
    return name, value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        pieces = (
            c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else f"\\U{ord(c):08x}" for c in escaped
        )
        return f'"{"".join(pieces)}"'
    return str(value)

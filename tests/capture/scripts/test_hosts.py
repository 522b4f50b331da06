"""Scripts for hosts: checked by shellcheck and bash, and run with substitute launchers and a substitute profiler."""

import os
import shutil
import stat
import subprocess

import pytest
from tests.capture.scripts.rendering import HOSTS, ODD, rendered, settings

from alltrace.capture.scripts.registry import render
from alltrace.capture.scripts.settings import Job
from alltrace.trace.errors import UsageError

# what a launcher does: each rank gets its place, all of them the words that follow the launcher's own
LAUNCHER = """#!/bin/bash
while [ "$1" != alltrace ] && [ "$1" != sh ] && [ "$1" != torchrun ]; do shift; done
if [ "$1" = torchrun ]; then while [ "$1" != --no-python ]; do shift; done; shift; fi
code=0
for rank in 0 1; do
  export RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2
  "$@" || code=$?
done
exit $code
"""
ALLTRACE = """#!/bin/sh
PYTHONPATH={source} exec {python} -m alltrace.cli.main "$@"
"""
PROGRAM = """#!/bin/sh
printf '[%s]' "$@" > "$WHERE/$RANK.arguments"
for value in "$NCCL_DEBUG" "$NCCL_DEBUG_SUBSYS" "$NCCL_DEBUG_FILE" "$NCCL_DEBUG_TIMESTAMP_FORMAT" "$ODD"; do
  echo "$value"
done > "$WHERE/$RANK.variables"
exit 3
"""


def test_shellcheck_and_bash_find_nothing_in_any_script(shellcheck, tmp_path):
    paths = []
    for label, _, text in rendered(HOSTS):
        path = tmp_path / f"{label}.sh"
        path.write_text(text)
        paths.append(path)
    assert len(paths) == 24 * 4 + 22
    checked = subprocess.run([shellcheck, "-S", "style", *paths], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")
    for path in paths:
        assert subprocess.run(["bash", "-n", path], capture_output=True, check=False).stderr == b"", path.name


@pytest.fixture
def site(tmp_path, fake_nsys, bare_environment, monkeypatch):
    """A folder with a program in it, and launchers on PATH; gives what starts a script there."""
    import sys

    tools = tmp_path / "bin"
    tools.mkdir()
    content = dict.fromkeys(("srun", "mpirun", "mpiexec", "torchrun"), LAUNCHER)
    content["alltrace"] = ALLTRACE.format(source=os.environ["PYTHONPATH"], python=sys.executable)
    content["scontrol"] = "#!/bin/sh\necho host-a\n"
    for name, text in content.items():
        (tools / name).write_text(text)
    work = tmp_path / "my work"
    work.mkdir()
    (work / "a program").write_text(PROGRAM)
    for path in (*tools.iterdir(), work / "a program"):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    nodes = tmp_path / "nodes"
    nodes.write_text("host-a\nhost-a\n")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("ALLTRACE_NSYS", str(fake_nsys))
    monkeypatch.setenv("WHERE", str(tmp_path))
    for name, value in {"SLURM_JOB_ID": "77", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "host-a"}.items():
        monkeypatch.setenv(name, value)
    for name, value in {"PBS_JOBID": "77.server", "PBS_NODEFILE": str(nodes), "JOB_ID": "77"}.items():
        monkeypatch.setenv(name, value)

    def start(target, **changes):
        job = Job(settings(job__nodes=1, job__ranks_per_node=2, workload__command=["./a program"], **changes))
        script = tmp_path / "job script.sh"
        script.write_text(render(target, job))
        return subprocess.run(["bash", script], cwd=work, capture_output=True, text=True, check=False, timeout=120)

    return start


@pytest.mark.parametrize("wrapper", ["alltrace", "shell"])
@pytest.mark.parametrize("target", HOSTS)
def test_a_script_profiles_every_rank_with_the_words_as_they_were_and_uploads(site, tmp_path, target, wrapper):
    uploaded = tmp_path / "bucket"
    changes = {"upload__url": f"file://{uploaded}"} if wrapper == "alltrace" else {"upload__url": ""}
    done = site(target, job__output="all reports", profiler__wrapper=wrapper, **changes)
    assert done.returncode == 3, done.stderr  # the program's own exit code, whatever came after it
    words = "".join(f"[{w}]" for w in ODD)
    reports = tmp_path / "my work" / "all reports" / "77"
    for rank in "01":
        assert (tmp_path / f"{rank}.arguments").read_text() == words
        said = (tmp_path / f"{rank}.variables").read_text().splitlines()
        assert said[:2] == ["INFO", "INIT,ENV,COLL,P2P,NET,GRAPH,TUNING,NVLS"]
        assert said[2:] == [f"{reports}/nccl.%h.%p.log", "[%F %T.%6f] ", ODD[3]]
    names = sorted(p.name for p in reports.iterdir() if p.suffix == ".nsys-rep")
    assert [n[:9] for n in names] == ["77_rank0_", "77_rank1_"]
    if wrapper == "alltrace":
        assert sorted(p.name for p in (uploaded / "77").iterdir()) == names


def test_ncu_and_torch_record_what_they_are_told(site, tmp_path):
    ncu = tmp_path / "ncu"
    ncu.write_text(NCU)
    ncu.chmod(0o755)
    for wrapper in ("alltrace", "shell"):
        folder = tmp_path / "my work" / wrapper
        changes = {"job__output": wrapper, "profiler__wrapper": wrapper, "upload__url": "", "profiler__path": str(ncu)}
        done = site("mpi", profiler="ncu", profiler__launch_skip=5, **changes)
        assert done.returncode == 3, done.stderr
        (report,) = (folder / "77").glob("*.ncu-rep")
        assert report.name.startswith("77_rank0_")
        recorded = report.read_text()
        assert r"[--kernel-name][regex:^(gemm|it's a \$x)$]" in recorded
        assert "[--set][detailed]" in recorded
        assert "[--launch-skip][5][--launch-count][10]" in recorded
        (tmp_path / "my work" / "a program").write_text("#!/bin/sh\necho $ALLTRACE_TRACES $ALLTRACE_JOB\n")
        done = site("mpi", profiler="torch", **{**changes, "profiler__path": ""})
        assert done.stdout.splitlines() == [f"{folder}/77 77"] * 2
        (tmp_path / "my work" / "a program").write_text(PROGRAM)


NCU = """#!/bin/sh
case "$1" in --version) echo "Version 2024.1.1.0"; exit ;; --help) echo "--set --kernel-name"; exit ;; esac
all=$(printf '[%s]' "$@")
while [ "$1" != --export ]; do shift; done
out=$2
shift 2
"$@"
code=$?
printf 'NVR %s' "$all" > "$out"
exit $code
"""


def test_nccl_tests_run_one_after_the_other(site, tmp_path):
    for test in ("all_reduce_perf", "sendrecv_perf"):
        (tmp_path / "bin" / test).write_text(
            '#!/bin/sh\nprintf "%s " "${0##*/}" "$@" >> "$WHERE/log"; echo >> "$WHERE/log"\n'
        )
        (tmp_path / "bin" / test).chmod(0o755)
    changes = {"workload__tests": ["all_reduce_perf", "sendrecv_perf"], "workload__arguments": [], "upload__url": ""}
    done = site("slurm", workload="nccl-tests", **changes)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "log").read_text().splitlines()
    options = "-b 8 -e 2G -f 2 -g 1 -c 0 -n 20 "
    assert lines == [f"all_reduce_perf {options}"] * 2 + [f"sendrecv_perf {options}"] * 2
    names = sorted(p.name.partition("_on_")[0] for p in (tmp_path / "my work" / "reports" / "77").iterdir())
    assert names == [f"77-{t}_rank{r}" for t in ("all_reduce_perf", "sendrecv_perf") for r in (0, 1)]


def test_lines_of_the_batch_systems(tmp_path):
    text = render(
        "slurm", Job(settings(slurm__account="a", slurm__arguments=["--constraint=h100"], workload="nccl-tests"))
    )
    assert text.split("set -euo")[0].splitlines()[3:] == [
        "#SBATCH --job-name=profiled",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=8",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --time=01:00:00",
        "#SBATCH --output=%x-%j.out",
        "#SBATCH --exclusive",
        "#SBATCH --account=a",
        "#SBATCH --constraint=h100",
        "# the ranks are told to end before the time limit, so that their reports are written",
        "#SBATCH --signal=TERM@120",
    ]
    assert 'srun --kill-on-bad-exit=1 --mpi=pmix "${capture[@]}" "${program[@]}" || code=$?' in text
    text = render("pbs", Job(settings(pbs__select="system=polaris", pbs__filesystems="home:eagle", job__minutes=90)))
    wanted = ("select=2:system=polaris", "place=scatter", "walltime=01:30:00", "filesystems=home:eagle")
    assert "".join(f"#PBS -l {w}\n" for w in wanted) in text
    assert 'mpiexec -n "$((${#hosts[@]} * 8))" --ppn 8 "${capture[@]}"' in text


def test_ranks_of_a_container_see_the_same_folders():
    text = render(
        "slurm-pyxis", Job(settings(profiler__path="/opt/nsys/bin/nsys", slurm__container_mounts=["/data:/data"]))
    )
    assert "--container-image='nvcr.io#nvidia/pytorch:25.06-py3'" in text
    assert '--container-mounts="$output":"$output","$PWD":"$PWD",/data:/data,/opt/nsys:/opt/nsys' in text
    assert "--tmp /tmp" in text


@pytest.mark.parametrize("tail", ["", "/bin", "/bin/nsys", "/target-linux-x64", "/target-linux-x64/nsys"])
def test_containers_see_all_of_the_profiler(tmp_path, tail):
    folder = tmp_path / "nsight-systems" / "2025.3.1"
    text = render("slurm-pyxis", Job(settings(profiler__path=f"{folder}{tail}")))
    assert f",{folder}:{folder} " in text.replace("\n", " ")
    for part in ("bin", "target-linux-x64", "host-linux-x64"):
        (folder / part).mkdir(parents=True)
    (folder / "target-linux-x64/nsys").touch()
    (tmp_path / "nsys").symlink_to(folder / "target-linux-x64/nsys")
    assert f",{folder}:{folder} " in render(
        "slurm-pyxis", Job(settings(profiler__path=str(tmp_path / "nsys")))
    ).replace("\n", " ")


@pytest.mark.parametrize("path", ["/usr/local/bin/no-such/../nsys", "/usr/bin/nsys", "/nsys", "/bin"])
def test_folders_of_the_system_are_not_mounted_over_the_containers_own(path):
    with pytest.raises(UsageError, match="does not name an installation"):
        render("slurm-pyxis", Job(settings(profiler__path=path)))


@pytest.mark.parametrize(("minutes", "seconds"), [(2, 30), (5, 75), (8, 120), (60, 120)])
def test_the_signal_to_end_comes_well_after_the_start(minutes, seconds):
    assert f"#SBATCH --signal=TERM@{seconds}\n" in render("slurm", Job(settings(job__minutes=minutes)))


def test_time_limits_ranks_and_windows_that_programs_begin():
    with pytest.raises(UsageError, match="expected 2 or more"):
        render("slurm", Job(settings(job__minutes=1)))
    assert "TERM@" not in render("slurm", Job(settings(job__minutes=1, slurm__arguments=["--signal=INT@10"])))
    assert "--cutoff 4" in render("slurm", Job(settings(profiler__cutoff=4)))
    assert "--cutoff" not in render("slurm", Job(settings()))
    assert "--profile-ranks 0 1 2 3" in render("slurm", Job(settings(workload="megatron", profiler__cutoff=4)))
    text = render("slurm", Job(settings(workload="megatron", profiler__ranks="0,8")))
    assert "--capture-range cuda" in text
    assert "--profile-step-start 70\n  --profile-step-end 75\n  --profile-ranks 0 8" in text
    text = " ".join(render("slurm", Job(settings(workload="nemo", profiler__ranks="first-local"))).split())
    assert "model.nsys_profile.start_step=70 model.nsys_profile.end_step=74 'model.nsys_profile.ranks=[0,8]'" in text
    text = render("slurm", Job(settings(workload="megatron", profiler="torch")))
    assert "--use-pytorch-profiler" in text


@pytest.mark.skipif(shutil.which("dash") is None, reason="no dash on this machine")
def test_the_wrapper_in_a_script_is_posix(tmp_path):
    text = render("slurm", Job(settings(profiler__wrapper="shell")))
    wrapper = text.split("<<'END_OF_CAPTURE_SH'\n")[1].split("\nEND_OF_CAPTURE_SH")[0]
    assert subprocess.run(["dash", "-n"], input=wrapper, capture_output=True, text=True, check=False).stderr == ""


@pytest.mark.parametrize(("launch", "tasks", "cpus"), [("ranks", 8, 4), ("torchrun", 1, 32)])
def test_a_task_of_slurm_has_the_processors_of_its_ranks(launch, tasks, cpus):
    lines = render("slurm", Job(settings(workload__launch=launch, slurm__cpus_per_rank=4))).splitlines()
    assert f"#SBATCH --ntasks-per-node={tasks}" in lines
    assert f"#SBATCH --cpus-per-task={cpus}" in lines

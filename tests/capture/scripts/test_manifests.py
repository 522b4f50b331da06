"""Manifests against the schemas of Kubernetes and of the operators; their scripts against shellcheck."""

import copy
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.capture.scripts.rendering import (
    MANIFESTS,
    NEEDED,
    ODD,
    PROFILERS,
    VALUES,
    documents,
    filled_in,
    rendered,
    scripts,
    settings,
    templates,
)
from tests.together import together

from alltrace.capture.scripts.registry import render
from alltrace.capture.scripts.settings import Job

pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")
# names, types, choices and what is required of the upstream schemas, of which each file names its own
SCHEMAS = {
    (d["kind"], f.stem): d
    for f in sorted((Path(__file__).parent / "crds").glob("*.json"))
    for d in [json.loads(f.read_text())]
}
KUBERNETES = "1.30"


def strict(schema):
    """The schema as the API server applies it with strict field validation; a pod's template takes anything here."""
    if schema.get("pod"):
        return {"type": "object", "required": ["spec"]}
    made = {
        k: v
        for k, v in schema.items()
        if k in ("type", "enum", "required", "minimum", "minItems", "minLength", "maxLength")
    }
    if "properties" in schema:
        made["properties"] = {k: strict(v) for k, v in schema["properties"].items()}
        made["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = strict(schema["additionalProperties"])
    if "items" in schema:
        made["items"] = strict(schema["items"])
    return made


def faults(document):
    """What is wrong with a document by its own schemas and by that of Kubernetes for what it has of it."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
    found = []
    schemas = [s for (kind, _), s in SCHEMAS.items() if kind == document["kind"]]
    core = [document] if not schemas else []
    for schema in schemas:
        assert document["apiVersion"] == schema["apiVersion"]
        found += [e.message for e in jsonschema.Draft202012Validator(strict(schema["schema"])).iter_errors(document)]
    for template in templates(document):
        pod = copy.deepcopy(template)
        pod["spec"].setdefault("restartPolicy", "Never")
        core.append({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": "x", **pod.get("metadata", {})}})
    for one in core:
        try:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(error.message)
    return found


def test_every_manifest_holds_by_its_schemas():
    pytest.importorskip("kubernetes_validate")
    made = 0
    kinds = set()
    for label, _, text in rendered(MANIFESTS):
        for document in documents(text):
            assert faults(document) == [], label
            kinds.add(document["kind"])
        made += 1
    assert made == 24 + 3 * 22
    assert kinds == {"MPIJob", "PyTorchJob", "JobSet", "TrainJob", "TrainingRuntime", "ConfigMap"}


@together(
    ("target", "change", "said"),
    [
        ("k8s-mpijob", lambda d: d["spec"].update(slotPerWorker=8), "slotPerWorker"),
        ("k8s-mpijob", lambda d: d["spec"].update(mpiImplementation="openmpi"), "openmpi"),
        ("k8s-jobset", lambda d: d["spec"]["replicatedJobs"][0].update(replica=1), "replica"),
        ("k8s-pytorchjob", lambda d: d["spec"].update(nprocPerNode=8), "8"),
        ("k8s-jobset", lambda d: next(templates(d))["spec"].update(restartPolicys="Never"), "restartPolicys"),
        ("k8s-trainjob", lambda d: d["spec"].update(mlpolicy={}), "mlpolicy"),
    ],
)
def test_the_schemas_find_what_is_misspelt(target, change, said):
    pytest.importorskip("kubernetes_validate")
    document = documents(render(target, Job(settings())))[0]
    change(document)
    assert any(said in fault for fault in faults(document))


def test_shellcheck_finds_nothing_in_the_scripts_of_containers(shellcheck, tmp_path):
    labels = {}  # of each script; workers and masters often have the same
    for label, _, text in rendered(MANIFESTS):
        for document in documents(text):
            for n, script in enumerate(scripts(document)):
                labels.setdefault(script, []).append(f"{label}-{n}")
    assert (
        sum(map(len, labels.values())) == 24 + 22 * 2 + 22 * 1 + 22
    )  # a PyTorchJob has one for its master, one for its workers
    paths = [tmp_path / f"{its[0]}.sh" for its in labels.values()]
    for path, script in zip(paths, labels, strict=True):
        path.write_text(script)
    checked = subprocess.run(
        [shellcheck, "-S", "style", "-s", "bash", *paths], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")


@together("profiler", PROFILERS)
@together("target", MANIFESTS)
def test_the_words_of_the_program_come_through(target, profiler):
    words = [*ODD, "a$$b$$$c", "$(ODD)", "$$$(ODD)"]
    job = Job(settings(profiler, workload__arguments=words, environment={"ODD": words[-1]}))
    for document in documents(render(target, job)):
        for template in templates(document):
            for container in template["spec"]["containers"]:
                assert {"name": "ODD", "value": words[-1]} in [
                    {**v, "value": filled_in(v["value"])} for v in container["env"]
                ]
        for script in scripts(document):
            array = re.search(r"^program=\(\n.*?^\)$", script, re.DOTALL | re.MULTILINE)[0]
            done = subprocess.run(
                ["bash", "-c", array + "\nprintf '%s\\0' \"${program[@]}\""], capture_output=True, text=True, check=True
            )
            assert done.stdout.split("\0")[:-1] == ["python", "train.py", *words]


def test_labels_and_rights_and_volumes_are_the_pods():
    changes = {
        "kubernetes__inject": "injector",
        "kubernetes__secret": "keys",
        "kubernetes__efa": 4,
        "kubernetes__nodes": {"gpu": "h100"},
    }
    for target in MANIFESTS:
        for document in documents(render(target, Job(settings(**changes)))):
            assert "nvidia-devtools-sidecar-injector" not in document["metadata"].get("labels", {})
            for template in templates(document):
                assert template["metadata"]["labels"]["nvidia-devtools-sidecar-injector"] == "enabled"
                assert template["spec"]["terminationGracePeriodSeconds"] == 600
                assert template["spec"]["nodeSelector"] == {"gpu": "h100"}
                worker = template["spec"]["containers"][0]
                assert worker["envFrom"] == [{"secretRef": {"name": "keys"}}]
                assert worker["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
                assert {"name": "ALLTRACE_STEPS", "value": "70:75"} in worker["env"]
                # the injector mounts the reports there
                assert [m["mountPath"] for m in worker["volumeMounts"]] == ["/dev/shm"]
                assert [v["name"] for v in template["spec"]["volumes"]] == ["shared-memory"]
            assert all("capture exec" not in s for s in scripts(document))
    document = documents(render("k8s-jobset", Job(settings("ncu", kubernetes__inject="none"))))[0]
    worker = next(templates(document))["spec"]["containers"][0]
    assert worker["securityContext"]["capabilities"]["add"] == ["SYS_ADMIN"]
    assert worker["resources"]["limits"] == worker["resources"]["requests"] == {"nvidia.com/gpu": 8}
    assert (
        "securityContext"
        not in next(templates(documents(render("k8s-jobset", Job(settings())))[0]))["spec"]["containers"][0]
    )


def test_an_mpijob_its_config_map_and_its_images():
    job = Job(settings(workload="nccl-tests"))
    (document,) = documents(render("k8s-mpijob", job))
    launcher, worker = (document["spec"]["mpiReplicaSpecs"][n] for n in ("Launcher", "Worker"))
    assert (launcher["replicas"], worker["replicas"], document["spec"]["slotsPerWorker"]) == (1, 2, 8)
    script = " ".join(next(scripts(launcher)).replace("\\\n", "").split())
    assert "mpirun --allow-run-as-root -np 16 --map-by ppr:8:node -x PATH -x LD_LIBRARY_PATH -x NCCL_DEBUG " in script
    assert "-x ODD" in script
    assert 'alltrace capture upload "$reports" "s3://bucket/profiles/profiled"' in script
    assert "resources" not in launcher["template"]["spec"]["containers"][0]
    assert worker["template"]["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    config, document = documents(render("k8s-jobset", Job(settings(profiler__wrapper="shell"))))
    assert config["kind"] == "ConfigMap"
    assert config["data"]["capture.sh"].startswith("#!/bin/sh\n")
    pod = next(templates(document))["spec"]
    assert {"name": "alltrace", "configMap": {"name": "profiled-capture"}} in pod["volumes"]
    assert {"name": "alltrace", "mountPath": "/etc/alltrace"} in pod["containers"][0]["volumeMounts"]
    assert {"name": "ALLTRACE_OUTPUT", "value": "/reports/profiled"} in pod["containers"][0]["env"]
    assert "sh /etc/alltrace/capture.sh" in next(scripts(document))
    plain = {"nccl__log": False, "nccl__inspector": "", "environment": {}}
    text = render("k8s-pytorchjob", Job({**settings(**plain), "environment": {}}))
    assert "env:" not in text
    assert "    env:\n" in render("k8s-pytorchjob", Job(settings()))
    chosen = settings(injector__image="registry.example/nsight:1", injector__pull_policy="Never")
    (values,) = documents(render("k8s-injector", Job(chosen)))
    assert values["devtoolBinariesImage"] == {"image": "registry.example/nsight:1", "imagePullPolicy": "Never"}
    (values,) = documents(render("k8s-injector", Job(settings())))
    assert "devtoolBinariesImage" not in values


def test_the_values_of_the_injector():
    text = render("k8s-injector", Job(settings(profiler__steps="", profiler__delay="330", profiler__duration="50")))
    (values,) = documents(text)
    profile = values["profile"]
    switches = "--trace=cuda,nvtx --sample=none --cpuctxsw=none --delay=330 --duration=50 --kill=none"
    assert profile["devtoolArgs"].startswith(f"profile {switches} -o /reports/profiled_%{{POD_FULLNAME}}")
    assert "%q" not in profile["devtoolArgs"]
    assert profile["volumes"] == [{"name": "alltrace-reports", "persistentVolumeClaim": {"claimName": "reports"}}]
    for line in (
        "# Install: helm install -f FILE",
        "# Remove:  helm uninstall",
        "kubectl delete mutatingwebhookconfiguration",
    ):
        assert line in text
    (values,) = documents(render("k8s-injector", Job(settings(kubernetes__claim="", injector__match="^x$"))))
    assert values["profile"]["injectionMatch"] == "^x$"
    assert values["profile"]["volumes"][0]["emptyDir"] == {"sizeLimit": "20Gi"}


@pytest.mark.parametrize(
    ("command", "matched", "passed"),
    [
        (
            ["python", "-u", "src/train.py"],
            ["python -u src/train.py --x", "/usr/bin/python3.11 train.py", "/opt/bin/python -u -X dev /w/train.py a b"],
            [
                "bash -c python train.py",
                "/usr/bin/python3 /usr/local/bin/torchrun --nnodes 2 train.py",
                "python retrain.py",
                "python train_py",
            ],
        ),
        (
            ["python3", "-m", "pkg.train"],
            ["python -m pkg.train", "/b/python3 -u -m pkg.train x"],
            ["python -m pkg.trainer", "torchrun -m pkg.train"],
        ),
        (["./run me"], ["/w/run me", "run me --a"], ["sh run me"]),
    ],
)
def test_only_the_program_is_matched_not_what_starts_it(command, matched, passed):
    changes = {"workload__command": command, "workload__arguments": []}
    (values,) = documents(render("k8s-operator", Job(settings(**changes))))
    (pattern,) = values["nsight-injector"]["nsightToolConfig"]["injectionIncludePatterns"]
    assert all(re.search(pattern, line) for line in matched)
    assert not any(re.search(pattern, line) for line in passed)


def test_the_values_of_the_operator():
    text = render("k8s-operator", Job({**NEEDED, "profiler.gpu_metrics": True}))
    (values,) = documents(text)
    tool = values["nsight-injector"]["nsightToolConfig"]
    assert tool["nsightToolArgs"] == "--trace=cuda,nvtx --sample=none --cpuctxsw=none --gpu-metrics-devices=all"
    assert "helm uninstall nsight-operator -n nsight-operator" in text
    assert len(VALUES) == 2


@pytest.mark.parametrize("target", ["k8s-pytorchjob", "k8s-jobset", "k8s-trainjob"])
def test_a_pod_that_is_deleted_tells_its_ranks_and_uploads_what_they_leave(target, tmp_path):
    (tmp_path / "alltrace").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/uploaded\n')
    text = f"#!/bin/sh\ntrap 'echo whole > {tmp_path}/report; exit 7' TERM\necho ready\nwhile :; do sleep 0.05; done\n"
    (tmp_path / "torchrun").write_text(text)
    for name in ("alltrace", "torchrun"):
        (tmp_path / name).chmod(0o755)
    found = documents(render(target, Job(settings(environment={}))))
    script = next(text for document in found for text in scripts(document)).replace("/reports", f"{tmp_path}/reports")
    variables = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RANK": "0",
        "MASTER_ADDR": "x",
        "MASTER_PORT": "1",
        "JOB_COMPLETION_INDEX": "0",
    }
    with subprocess.Popen(["bash", "-c", script], env=variables, stdout=subprocess.PIPE, text=True) as pod:
        assert pod.stdout.readline() == "ready\n"
        pod.terminate()
        assert pod.wait(30) == 7
    assert (tmp_path / "report").read_text() == "whole\n"
    assert (tmp_path / "uploaded").read_text().startswith("capture upload ")


def test_reports_of_several_programs_have_names_of_their_own():
    tests = {
        "workload__kind": "nccl-tests",
        "workload__tests": ["all_reduce_perf", "sendrecv_perf"],
        "workload__arguments": [],
    }
    text = render("k8s-mpijob", Job(settings(profiler__wrapper="shell", profiler__steps="", **tests)))
    assert re.findall(r"export ALLTRACE_JOB=(\S+)", text) == ["profiled-all_reduce_perf", "profiled-sendrecv_perf"]
    text = render("k8s-mpijob", Job(settings(profiler__steps="", **tests)))
    assert re.findall(r"--job (\S+)", text) == ["profiled-all_reduce_perf", "profiled-sendrecv_perf"]

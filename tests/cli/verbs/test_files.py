"""The verbs that make files: `synth` and `import`; and reports given instead of a run."""

import json

import pytest

from alltrace.run.store import Run
from alltrace.synth import SCENARIOS


@pytest.fixture
def reports(alltrace, tmp_path):
    done = alltrace("synth", "--ideal", "tiny", "-o", tmp_path / "reports", "--set", "secrets=true")
    assert (done.code, done.out, done.err) == (0, "", f"{tmp_path / 'reports'}: 2 reports and truth.json\n")
    return tmp_path / "reports"


def test_synth_lists_every_scenario(alltrace):
    assert [line.split()[0] for line in alltrace("synth", "--list").out.splitlines()] == list(SCENARIOS)


def test_synth_changes_what_it_is_told_to(alltrace, tmp_path):
    done = alltrace(
        "synth",
        "--ideal",
        "tiny",
        "-o",
        tmp_path / "r",
        "--ranks",
        "4",
        "--steps",
        "1",
        "--set",
        "schema=3.7.2",
        "--as",
        "parquetdir",
    )
    assert done.code == 0
    truth = json.loads((tmp_path / "r" / "truth.json").read_text())
    assert (len(truth["ranks"]), len(truth["steps_ns"][0]), truth["schema"]) == (4, 1, "3.7.2")
    assert len(list((tmp_path / "r").glob("*_pqtdir"))) == 4
    assert alltrace("synth", "--ideal", "tiny", "-o", tmp_path / "x", "--set", "steps").code == 2


def test_import_makes_a_run_and_reports_in_its_place_are_imported_once(alltrace, reports, tmp_path):
    done = alltrace("import", reports, "-o", tmp_path / "run", "--only", "kernels,copies")
    assert (done.code, done.out) == (0, "")
    assert f"{tmp_path / 'run'}: 2 ranks on 2 hosts, " in done.err
    run = Run(tmp_path / "run")
    assert set(run.ranks[0].rows) == {"kernels", "copies"}
    assert alltrace("import", reports, "-o", tmp_path / "run", "--only", " , ").code == 2
    first = alltrace("overlap", reports, "--format", "json")
    made = sorted((tmp_path / "2" / "cache").rglob("manifest.json"))
    stamps = [p.stat().st_ino for p in made]
    assert alltrace("overlap", reports, "--format", "json").out == first.out
    assert [p.stat().st_ino for p in made] == stamps
    assert len(json.loads(first.out)["rows"]) == 2


def test_a_users_kernel_rules_win(alltrace, reports, tmp_path):
    rules = tmp_path / "rules.txt"
    rules.write_text("\ufeff# mine\n\nmine\t(?i)gemm|cutlass|sgemm\nunclassified  flash|softmax|layer_norm\n")
    (tmp_path / "bad.txt").write_text("compute (\n")
    kinds = {
        r["name"]: r["kind"]
        for r in json.loads(alltrace("kernels", reports, "--kernel-rules", rules, "--format", "json").out)["rows"]
    }
    before = {r["name"]: r["kind"] for r in json.loads(alltrace("kernels", reports, "--format", "json").out)["rows"]}
    changed = {n: k for n, k in kinds.items() if k != before[n]}
    assert set(changed.values()) == {"mine", "unclassified"}
    assert all(("gemm" in n.lower() or "cutlass" in n.lower()) == (k == "mine") for n, k in changed.items())
    noted = alltrace("breakdown", reports, "--kernel-rules", rules, "--format", "csv").err
    assert "% of the kernel time is in kernels that no rule names" in noted
    bad = alltrace("breakdown", reports, "--kernel-rules", tmp_path / "bad.txt")
    assert (bad.code, bad.out) == (3, "")
    assert "line 1 does not contain a valid regular expression" in bad.err


def test_kernel_rules_cannot_change_a_run_that_was_imported_with_others(alltrace, reports, tmp_path):
    (tmp_path / "rules.txt").write_text("mine gemm\n")
    assert alltrace("import", reports, "-o", tmp_path / "run").code == 0
    done = alltrace("kernels", tmp_path / "run", "--kernel-rules", tmp_path / "rules.txt")
    assert (done.code, done.out) == (2, "")
    assert "imported with different kernel rules" in done.err
    assert alltrace("import", reports, "-o", tmp_path / "other", "--kernel-rules", tmp_path / "rules.txt").code == 0
    assert alltrace("kernels", tmp_path / "other", "--kernel-rules", tmp_path / "rules.txt").code == 0


def test_no_secret_of_a_report_is_in_an_answer_or_in_the_cache(alltrace, reports, tmp_path):
    secrets = json.loads((reports / "truth.json").read_text())["secrets"]
    assert secrets
    done = alltrace("info", reports, "--format", "json")
    held = [p.read_bytes() for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert held
    for secret in secrets:
        assert secret not in done.out + done.err
        assert not any(secret.encode() in b for b in held)

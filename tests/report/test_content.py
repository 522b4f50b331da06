import pytest
from tests.making import copy, kernel, make_run
from tests.recipes.work import call, launched, module, operator
from tests.together import together

from alltrace.recipes.registry import find
from alltrace.report.content import ASKS, gather
from alltrace.report.naming import run_title
from alltrace.run.labels import with_defaults
from alltrace.run.manifest import Labels, Manifest, RankRecord, ReportRecord
from alltrace.trace.errors import AlltraceError, UsageError

MS = 1_000_000


@together("ask", ASKS)
def test_every_section_shows_columns_that_its_recipe_has(ask):
    recipe = find(ask.recipe)
    columns = {
        c.name for c in recipe.answer_columns({o.name: ask.options.get(o.name, o.default) for o in recipe.options})
    }
    assert {*ask.shown, *ask.views} <= columns


def sections(report):
    return {s.ask.key: s for s in report.sections}


def test_answers_are_those_of_the_recipes_and_said_once(hostile_run):
    report = gather(hostile_run, "a run")
    found = sections(report)
    assert list(found) == [*(a.key for a in ASKS if not a.only_with), "clocks"]
    assert found["breakdown"].answer.table.equals(hostile_run.recipe("breakdown").to_arrow())
    assert list(found["activity"].figures) == ["compute", "busy", "communication", "exposed", "idle", "waiting"]
    assert report.facts == {"ranks": 4, "hosts": 1, "devices": 4, "span_ns": 69 * MS}
    notes = [n for s in gather(hostile_run, "a run").sections for n in s.notes]
    assert notes.count("rank 4: no report") == 1


@pytest.mark.parametrize(
    "rows",
    [
        {},
        {0: {}},
        {0: {"kernels": [kernel(5, 5)]}},
        {0: {"kernels": [kernel(0, 8)]}},
        {3: {"copies": [copy(0, 8)]}},
        {0: {"ranges": [{"start": 0, "end": 9, "name": "a"}]}},
    ],
    ids=["no rank", "no event", "no length", "one kernel", "one copy", "no device"],
)
def test_a_section_without_an_answer_says_so(rows, tmp_path):
    report = gather(make_run(tmp_path, rows), "a run")
    assert [s.ask.key for s in report.sections] == [*(a.key for a in ASKS if not a.only_with), "clocks"]
    for section in report.sections:
        assert section.problem or section.answer.table.num_rows


def test_a_recipe_that_refuses_costs_its_section_alone(hostile_run, monkeypatch):
    def refuse(*_arguments):
        raise AlltraceError("no replay of this run")

    monkeypatch.setitem(vars(find("gaps")), "map", refuse)
    found = sections(gather(hostile_run, "a run"))
    assert (found["gaps"].answer, found["gaps"].problem) == (None, "no replay of this run")
    assert found["kernels"].answer.table.num_rows


def test_a_run_of_pytorch_has_its_operators_modules_and_memory(tmp_path):
    blocks = [{"time": 3, "kind": "allocate", "bytes": 8, "address": 1, "memory": "cuda"}]
    ranges = [module("Linear_0", 0, 50), operator("aten::mm", 5, 20), {"start": 0, "end": 90, "name": "ProfilerStep#1"}]
    tables = {
        "ranges": ranges,
        "allocations": blocks,
        "kernels": launched([("k", 1, 30, 60)]),
        "api": [call(10, 12, 1)],
    }
    found = sections(gather(make_run(tmp_path, {0: tables}), "a run"))
    assert list(found) == [*(a.key for a in ASKS), "clocks"]
    (row,) = found["kernel-origins"].table.to_pylist()
    assert (row["name"], row["operator"], row["module"]) == ("k", "aten::mm", "Linear_0")
    assert found["memory"].figures


def test_steps_and_ranks_that_are_not_there_are_refused(hostile_run):
    with pytest.raises(UsageError, match="needs steps"):
        gather(hostile_run, "a run", steps="3:4")
    with pytest.raises(UsageError, match="rank 9"):
        gather(hostile_run, "a run", ranks=[9])


def manifest(environments, hosts, utc_ns):
    reports = tuple(ReportRecord(f"r{n}", 1, "", environment=e) for n, e in enumerate(environments))
    ranks = tuple(
        RankRecord(
            rank=n,
            local_rank=n,
            host=h,
            pids=(),
            devices=(),
            rank_source="RANK",
            reports=(n,),
            start_ns=0,
            end_ns=1,
            rows={},
        )
        for n, h in enumerate(hosts)
    )
    return Manifest(
        reports=reports, ranks=ranks, clocks=(), zero_utc_ns=utc_ns, labels=with_defaults(Labels(), environments)
    )


def test_a_run_is_called_by_its_job_date_and_hosts():
    job = {"SLURM_JOB_NAME": "pretrain", "SLURM_JOB_ID": "4711"}
    utc = 1_772_368_200_000_000_000
    assert (
        run_title(manifest([job, job], ["a", "b", "a"], utc), ["/x/y"])
        == "pretrain, job 4711 · 2026-03-01 12:30 UTC · a and 1 more"
    )
    assert run_title(manifest([job, {**job, "SLURM_JOB_ID": "1"}], ["a"], 5), ["/x/y/"]) == "pretrain · a"
    assert run_title(manifest([{}], [], None), ["/x/reports/", "b.sqlite"]) == "reports, b.sqlite"

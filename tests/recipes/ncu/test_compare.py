from __future__ import annotations

import pytest
from tests.ncu_launches import measured, of

from alltrace.recipes.ncu import compare

TIME = "gpu__time_duration.sum"


def test_launches_are_matched_by_name_configuration_and_order():
    first = [
        measured({TIME: 100}, 0),
        measured({TIME: 200}, 1),
        measured({TIME: 5}, 2, name="gone()"),
        measured({TIME: 7}, 3, grid=(1, 1, 1)),
    ]
    second = [
        measured({TIME: 30}, 0, name="new()"),
        measured({TIME: 80}, 1, name="void gemm<float>(float *)"),
        measured({TIME: 250}, 2),
    ]
    answer = compare.answer(of(*first), [of(*second, report="b.ncu-rep")], ("given",))
    rows = answer.table.to_pylist()
    assert [
        (r["launch_a"], r["launch_b"], r["metric"], r["a"], r["b"], r["change"], r["change_percent"]) for r in rows
    ] == [(0, 1, "duration_ns", 100.0, 80.0, -20.0, -20.0), (1, 2, "duration_ns", 200.0, 250.0, 50.0, 25.0)]
    alone = answer.further["unmatched"].table.to_pylist()
    assert [(r["report"], r["name"], r["grid"]) for r in alone] == [
        ("a.ncu-rep", "gone()", "80x1x1"),
        ("a.ncu-rep", "void gemm<float>(float*)", "1x1x1"),
        ("b.ncu-rep", "new()", "80x1x1"),
    ]
    assert "3 launches have no partner" in answer.notes[1]


def test_a_metric_that_one_side_lacks_has_no_change():
    waves = "launch__waves_per_multiprocessor"
    rows = compare.answer(of(measured({TIME: 0})), [of(measured({TIME: 4, waves: 2.0}))], ()).table.to_pylist()
    assert [(r["metric"], r["a"], r["b"], r["change"], r["change_percent"]) for r in rows] == [
        ("duration_ns", 0.0, 4.0, 4.0, None),
        ("waves", None, 2.0, None, None),
    ]


def test_several_reports_are_compared_with_the_first():
    others = [of(measured({TIME: 90}), report="b"), of(measured({TIME: 80}), measured({TIME: 1}, 1), report="c")]
    answer = compare.answer(of(measured({TIME: 100})), others, ())
    rows = answer.table.to_pylist()
    assert [(r["report_b"], r["launch_b"], r["name_b"], r["change"]) for r in rows] == [
        ("b", 0, "void gemm<float>(float*)", -10.0), ("c", 0, "void gemm<float>(float*)", -20.0)
    ]  # fmt: skip
    assert [r["report"] for r in answer.further["unmatched"].table.to_pylist()] == ["c"]


@pytest.mark.parametrize(
    ("match", "partners"),
    [("configuration", [(1, 0)]), ("name", [(0, 0), (1, 1)]), ("function", [(0, 0), (1, 1), (2, 2)]),
     ("order", [(0, 0), (1, 1), (2, 2)])],
)  # fmt: skip
def test_partners_may_have_less_in_common(match, partners):
    first = [
        measured({TIME: 1}, 0, grid=(9, 1, 1)),
        measured({TIME: 1}, 1),
        measured({TIME: 1}, 2, name="void other<int>()"),
    ]
    second = [
        measured({TIME: 1}, 0),
        measured({TIME: 1}, 1, grid=(5, 1, 1)),
        measured({TIME: 1}, 2, name="void other<long>()"),
    ]
    answer = compare.answer(of(*first), [of(*second)], (), match)
    assert [(r["launch_a"], r["launch_b"]) for r in answer.table.to_pylist()] == partners
    assert bool(answer.notes) == (len(partners) < 3)


def test_any_metric_can_be_compared():
    first, second = (of(measured({TIME: 1, "dram__bytes.sum": n, "dram__note": "x"})) for n in (4, 5))
    rows = compare.answer(first, [second], (), patterns=["dram__*"]).table.to_pylist()
    assert [(r["metric"], r["unit"], r["a"], r["b"], r["change_percent"]) for r in rows] == [
        ("dram__bytes.sum", "byte", 4.0, 5.0, 25.0)
    ]

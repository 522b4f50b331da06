from __future__ import annotations

import pytest
from tests.together import together

from alltrace.nvidia.report import Report
from alltrace.recipes.registry import REPORTS, find_report
from alltrace.trace.errors import UsageError
from alltrace.trace.schema import TABLES


@together("name", sorted(REPORTS))
def test_every_report_is_declared_whole(name: str) -> None:
    report = find_report(name)
    assert isinstance(report, Report)
    assert report.name == name
    assert report.title
    for table, columns in report.tables.items():
        assert set(columns) <= set(TABLES[table].column_names)
    assert {t for group in report.needs({}) for t in group} <= set(report.tables)
    assert all(cell.doc.endswith(".") for cell in report.cells)
    headers = [c.name for c in report.answer_columns({"by_rank": True})]
    assert headers[0] in ("Rank", "Run Rank")
    assert len(set(headers)) == len(headers)


def test_options_in_the_name_are_defaults() -> None:
    defaults = {o.name: o.default for o in find_report("cuda_gpu_kern_sum:nvtx-name:base").options}
    assert defaults == {"nvtx_name": True, "base": True, "mangled": False, "by_rank": False}
    assert not any(o.default for o in find_report("cuda_gpu_kern_sum").options)
    assert {o.name: o.default for o in find_report("um_sum:rows=3").options}["rows"] == 3


@together(
    ("spec", "message"),
    [
        ("cuda_gpu_kernsum", "did you mean cuda_gpu_kern_sum"),
        ("cuda_gpu_kern_sum:bass", "did you mean base"),
        ("um_sum:rows", "rows=VALUE"),
        ("um_sum:rows=many", "'many'; expected int"),
        ("cuda_gpu_kern_sum:base=1", "takes no value"),
    ],
)
def test_what_is_not_there_is_said(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_report(spec)

"""Tables of an export are found by name, whichever version of them it has."""

from __future__ import annotations

from tests.together import together

from alltrace.readers.nsys.mapping import find_table, sources_of


@together(
    ("tables", "found"),
    [
        (["OTHER", "EVENTS"], "EVENTS"),
        (["EVENTS_V9", "EVENTS"], "EVENTS"),
        (["EVENTS_V9", "EVENTS_V10", "EVENTS_V2"], "EVENTS_V10"),
        (["EVENTS_V02", "EVENTS_V2"], "EVENTS_V02"),
        (["EVENTS_V", "EVENTS_VX", "EVENTS_V1_V2", "MORE_EVENTS_V3", f"EVENTS_V{'9' * 5000}"], None),
        ([], None),
    ],
)
def test_the_newest_version_of_a_table(tables, found):
    assert find_table(tables, "EVENTS") == found


def test_each_set_of_tables_has_its_own_sources():
    api = [("CUPTI_ACTIVITY_KIND_RUNTIME", "api"), ("OSRT_API", "osrt")]
    for raw, table in [*api, *api]:
        assert [(found, source.table) for found, source in sources_of(table, [raw])] == [(raw, table)]
        assert list(sources_of(table, ["StringIds"])) == []
    assert [found for found, _ in sources_of("kernels", ["CUPTI_ACTIVITY_KIND_KERNEL_V3", "CUPTI_ACTIVITY_KIND_KERNEL_V11"])] == [
        "CUPTI_ACTIVITY_KIND_KERNEL_V11"
    ]

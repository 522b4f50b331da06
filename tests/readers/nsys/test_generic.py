from __future__ import annotations

import json

from alltrace.readers.base import ReportWarning

EVENTS = "GENERIC_EVENTS(rawTimestamp, timestamp, typeId, data TEXT)"
TYPES = "GENERIC_EVENT_TYPES(typeId, sourceId, data TEXT)"
SOURCES = "GENERIC_EVENT_SOURCES(sourceId, data TEXT)"


def test_events_with_json(export, read):
    got = read(
        export(
            {
                EVENTS: [
                    (
                        None,
                        5,
                        1,
                        json.dumps(
                            {"Device": "rdmap0s6", "rx_bytes": "100", "tx_bytes": 7, "note": "text", "up": True}
                        ),
                    ),
                    (None, 6, 1, "{ broken"),
                    (None, None, 1, json.dumps({"rx_bytes": 5})),
                    (None, 7, 2, json.dumps({"SMs Active": "5"})),
                    (None, 8, 3, json.dumps({"x": 2.5, "y": "NaN"})),
                    (None, 9, 1, "[1, 2]"),
                ],
                TYPES: [(1, 10, json.dumps({"Name": "efa"})), (2, 11, json.dumps({"Name": ""}))],
                SOURCES: [(10, json.dumps({"Name": "EFA"})), (11, json.dumps({"Name": "GpuMetrics"}))],
            }
        )
    )
    assert [(r["time"], r["source"], r["metric"], r["value"]) for r in got.rows("generic_metrics")] == [
        (5, "EFA", "efa: rx_bytes (rdmap0s6)", 100.0),
        (5, "EFA", "efa: tx_bytes (rdmap0s6)", 7.0),
        (8, "", "x", 2.5),
    ]
    left_out = "rows of table GENERIC_EVENTS that are left out because they have no time"
    assert got.warnings == (ReportWarning(left_out, ("generic_metrics",), 1),)


def test_events_with_a_row_for_each_field(export, read):
    got = read(
        export(
            {
                "GENERIC_EVENTS(genericEventId, rawTimestamp, timestamp, typeId, globalTid)": [
                    (2, 0, 50, 1, None),
                    (1, 0, 40, 1, None),
                    (3, 0, None, 1, None),
                    (4, 0, 60, 2, None),
                    (5, 0, None, 2, None),
                ],
                "GENERIC_EVENT_DATA(genericEventId, fieldIdx, intVal, uintVal, floatVal REAL, doubleVal REAL)": [
                    (1, 0, -5, None, None, None),
                    (1, 1, None, None, 2.5, None),
                    (2, 0, None, 6, None, None),
                    (2, 1, None, None, None, None),
                    (3, 0, 7, None, None, None),
                    (3, 1, 7, None, None, None),
                    (5, 0, 7, None, None, None),
                    (4, 0, 8, None, None, None),
                    (9, 0, 9, None, None, None),
                ],
                "GENERIC_EVENT_TYPES(typeId, sourceId, nameId)": [(1, 10, 1), (2, 11, 1)],
                "GENERIC_EVENT_SOURCES(sourceId, nameId)": [(10, 2), (11, 3)],
                "GENERIC_EVENT_TYPE_FIELDS(typeId, fieldIdx, fieldNameId)": [(1, 0, 4)],
            },
            strings={1: "port", 2: "EFA", 3: "GpuMetrics", 4: "rx_bytes"},
        )
    )
    assert [(r["time"], r["source"], r["metric"], r["value"]) for r in got.rows("generic_metrics")] == [
        (40, "EFA", "port: rx_bytes", -5.0),
        (40, "EFA", "port: field 1", 2.5),
        (50, "EFA", "port: rx_bytes", 6.0),
    ]
    left_out = "rows of table GENERIC_EVENT_DATA that are left out because they have no time"
    assert got.warnings == (ReportWarning(left_out, ("generic_metrics",), 2),)


def test_halves_of_surrogate_pairs_in_json_are_no_text(export, read):
    got = read(
        export(
            {EVENTS: [(None, 5, 1, '{"a\\ud800": 3, "device": "x\\udfff"}')], TYPES: [(1, 1, '{"Name": "\\ud801"}')]}
        )
    )
    assert [(r["metric"], r["value"]) for r in got.rows("generic_metrics")] == [("?: a? (x?)", 3.0)]


def test_fields_of_another_form(export, read):
    events = {"GENERIC_EVENTS(genericEventId REAL, timestamp, typeId TEXT)": [(1, 5, 1)], TYPES: []}
    got = read(
        export({**events, "GENERIC_EVENT_DATA(genericEventId, fieldIdx, doubleVal TEXT)": [(1, 2, "2.5"), (1, 3, "x")]})
    )
    assert [(r["time"], r["metric"], r["value"]) for r in got.rows("generic_metrics")] == [(5, "field 2", 2.5)]
    assert read(export({**events, "GENERIC_EVENT_DATA(genericEventId, value)": [(1, 2)]})).rows("generic_metrics") == []


def test_fields_without_events_are_no_rows(export, read):
    data = {"GENERIC_EVENT_DATA(genericEventId, fieldIdx, doubleVal REAL)": [(1, 2, 2.5)]}
    got = read(export({"GENERIC_EVENTS(genericEventId, timestamp, typeId)": [], TYPES: [], **data}))
    assert got.rows("generic_metrics") == []

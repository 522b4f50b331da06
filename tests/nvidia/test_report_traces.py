import pytest
from tests.making import make_run

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find_report

WAITS = "IB: Send waits"


def sample(start, value, metric=WAITS, **others):
    return {"start": start, "end": start + 1000, "metric": metric, "value": value, **others}


@pytest.mark.parametrize(("threshold", "shown"), [({}, [2000, 3000]), ({"ticks_threshold": 10}, [1000, 2000, 3000])])
def test_samples_above_the_threshold(tmp_path, threshold, shown):
    adapter = [
        sample(0, 10.0, guid=-1, model="ConnectX-7"),
        sample(1000, 10_000.0, guid=-1, model="ConnectX-7"),
        sample(2000, 10_001.9, guid=-1, model="ConnectX-7"),
        sample(4000, 99_999.0, "IB: Bytes sent", guid=-1, model="ConnectX-7"),
    ]
    run = make_run(
        tmp_path / "run", {0: {"nic_metrics": adapter, "switch_metrics": [sample(3000, 20_000.0, guid=0x1F)]}}
    )
    rows = ask(run, find_report("network_congestion"), threshold).table.to_pylist()
    assert [r["Start (ns)"] for r in rows] == shown
    assert rows[-2:] == [
        {
            "Start (ns)": 2000, "End (ns)": 3000, "Duration (ns)": 1000, "Send wait rate (ticks/ms)": 10_001,
            "GUID": "ffffffffffffffff", "Device name": "ConnectX-7",
        },
        {
            "Start (ns)": 3000, "End (ns)": 4000, "Duration (ns)": 1000, "Send wait rate (ticks/ms)": 20_000,
            "GUID": "1f", "Device name": None,
        },
    ]  # fmt: skip

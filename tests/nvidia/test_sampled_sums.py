import numpy as np
import pytest
from tests.making import kernel, make_run

from alltrace.nvidia.maps import bin_means, bin_rates
from alltrace.recipes.analysis.sampled import plain_metric
from alltrace.recipes.execution.ask import ask
from alltrace.trace.errors import UsageError

ANCHOR = {"kernels": [kernel(0, 100)]}


def ints(*values):
    return np.array(values, np.int64)


def gpu(metric, values, period=10, **others):
    return [{"time": (i + 1) * period, "metric": metric, "value": v, **others} for i, v in enumerate(values)]


def nic(start, end, metric, value, name="mlx5_0", guid=255, **others):
    return {"start": start, "end": end, "metric": f"IB: {metric}", "value": value, "nic": name, "guid": guid, **others}


def cells(answer, *titles):
    return [tuple(row[t] for t in titles) for row in answer.table.to_pylist()]


def test_samples_have_names_and_rates_by_their_time():
    assert plain_metric("SMs Active [Throughput %]") == plain_metric("SM Active") == "sm active"
    assert plain_metric("SM Issue [Throughput %]") == "sm issue"
    means = bin_means(ints(0, 10, 11, 20, 30, 31), np.array([9.0, 2, 4, 6, 8, 7]), ints(0, 10, 20, 30))
    assert means.tolist() == [2.0, 5.0, 8.0]
    assert np.isnan(bin_means(ints(), np.array([]), ints(0, 10))).tolist() == [True]
    rates = bin_rates(ints(0, 15, 40), ints(15, 30, 40), np.array([2.0, 8.0, 99.0]), ints(0, 10, 20, 30, 40))
    assert rates[:3].tolist() == [2.0, 5.0, 8.0]
    assert np.isnan(rates[3])
    far = 1 << 60
    rates = bin_rates(
        ints(far, far + 15), ints(far + 15, far + 30), np.array([2.0, 8.0]), ints(far, far + 10, far + 20)
    )
    assert rates.tolist() == [2.0, 5.0]


def test_gpu_metrics_bin_by_bin(tmp_path):
    samples = [
        *gpu("SMs Active [Throughput %]", [10, 20, 30, 40]),
        *gpu("Tensor Active", [50, 70], 20),
        *gpu("DRAM Read Bandwidth [Throughput %]", [99]),
        *gpu("SM Issue", [1, 2, 3, 4, 5, 6], device=1),
    ]
    devices = [{"device": 0, "ordinal": 0, "gpu": 4}, {"device": 1, "ordinal": 1}]
    run = make_run(tmp_path / "run", {0: {**ANCHOR, "gpu_metrics": samples, "devices": devices}})
    answer = ask(run, "gpu_metric_util_map", {"bins": 5})
    assert cells(answer, "GPU", "Duration", "SM Active", "SM Issue", "Tensor Active") == [
        (4, 0, 15.0, None, 50.0), (4, 20, 35.0, None, 70.0), (4, 40, None, None, None), (4, 60, None, None, None),
        (4, 80, None, None, None),
        (1, 0, None, 1.5, None), (1, 20, None, 3.5, None), (1, 40, None, 5.5, None), (1, 60, None, None, None),
        (1, 80, None, None, None),
    ]  # fmt: skip


def test_every_gpu_metric_in_numbers(tmp_path):
    run = make_run(tmp_path / "run", {0: {**ANCHOR, "gpu_metrics": [*gpu("A", [1, 2, 3, 10]), *gpu("B", [7])]}})
    assert ask(run, "gpu_metric_util_sum").table.to_pylist() == [
        {
            "Name": None, "GPU": 0, "Metric": "A", "Count": 4, "Mean": 4.0, "Std": 4.1, "Min": 1.0, "Q1": 1.8,
            "Median": 2.5, "Q3": 4.8, "Max": 10.0, "File": "rank0",
        },
        {
            "Name": None, "GPU": 0, "Metric": "B", "Count": 1, "Mean": 7.0, "Std": None, "Min": 7.0, "Q1": 7.0,
            "Median": 7.0, "Q3": 7.0, "Max": 7.0, "File": "rank0",
        },
    ]  # fmt: skip


def test_gpu_metrics_while_kernels_run(tmp_path):
    kernels = [
        kernel(0, 20, "a"),
        kernel(15, 30, "a", stream=8),
        kernel(31, 39, "b"),
        kernel(40, 50, "c"),
        kernel(10, 30, "d", device=1),
    ]
    samples = [*gpu("A", [1, 2, 3, 4, 6]), *gpu("A", [100, 200, 300], device=1)]
    devices = [{"device": d, "ordinal": d} for d in range(2)]
    run = make_run(tmp_path / "run", {0: {"kernels": kernels, "gpu_metrics": samples, "devices": devices}})

    def asked(**options):
        return cells(ask(run, "gpu_metric_util_sum", {"per_kernel": True, **options}), "Name", "GPU", "Count", "Mean")

    # a sample in two kernels of one name counts once; b holds none
    assert asked() == [("a", 0, 3, 2.0), ("c", 0, 2, 5.0), ("d", 1, 3, 200.0)]
    assert asked(match_ranges="^[ac]$") == [("a", 0, 3, 2.0), ("c", 0, 2, 5.0)]
    assert asked(longest_n=2) == [("a", 0, 2, 1.5), ("d", 1, 3, 200.0)]
    assert asked(longest_n=0) == []


def test_gpu_metrics_while_ranges_run_and_of_the_longest_once(tmp_path):
    tables = {
        "kernels": [kernel(25, 45, correlation=1), kernel(60, 70, correlation=2)],
        "api": [{"start": 2, "end": 3, "correlation": 1}, {"start": 12, "end": 13, "correlation": 2}],
        "ranges": [{"start": 0, "end": 10, "name": "forward", "kind": "pushpop"}],
        "gpu_metrics": gpu("A", [1, 2, 30, 40, 5, 6, 7]),
    }
    answer = ask(make_run(tmp_path / "run", {0: tables}), "gpu_metric_util_sum", {"per_projected_nvtx": True})
    assert cells(answer, "Name", "GPU", "Count", "Mean") == [("forward", 0, 2, 35.0)]
    launches = [{"start": 20 * i + 1, "end": 20 * i + 2, "correlation": i + 1} for i in range(3)]
    tables = {
        "kernels": [kernel(100 * i + 100, 100 * i + 150 + i, correlation=i + 1, device=i % 2) for i in range(3)],
        "api": launches,
        "ranges": [{"start": 20 * i, "end": 20 * i + 9, "name": f"r{i}", "kind": "pushpop"} for i in range(3)],
        "gpu_metrics": [*gpu("A", range(50)), *gpu("A", range(50), device=1)],
        "devices": [{"device": d, "ordinal": d} for d in range(2)],
    }
    run = make_run(tmp_path / "2" / "run", {0: tables})
    found = cells(ask(run, "gpu_metric_util_sum", {"per_projected_nvtx": True, "longest_n": 2}), "Name", "GPU")
    assert found == [("r1", 0), ("r1", 1), ("r2", 0), ("r2", 1)]


def test_samples_that_are_no_numbers_expressions_and_nvlink_alone(tmp_path):
    samples = [*gpu("SM Active", [1.0, float("nan"), 3.0]), *gpu("SM Issue", [float("inf"), 5.0, None])]
    run = make_run(tmp_path / "run", {0: {**ANCHOR, "gpu_metrics": samples}})
    found = cells(ask(run, "gpu_metric_util_sum"), "Metric", "Count", "Mean")
    assert found == [("SM Active", 2, 2.0), ("SM Issue", 1, 5.0)]
    run = make_run(tmp_path / "2" / "run", {0: {**ANCHOR, "gpu_metrics": gpu("A", [1])}})
    with pytest.raises(UsageError, match="--per-kernel or --per-projected-nvtx, but both"):
        ask(run, "gpu_metric_util_sum", {"per_kernel": True, "per_projected_nvtx": True})
    with pytest.raises(UsageError, match=r"--match-ranges is '\(', which is not a valid regular expression"):
        ask(run, "gpu_metric_util_sum", {"per_kernel": True, "match_ranges": "("})
    samples = [*gpu("NVLink RX Requests User Data [Throughput %]", [10, 30]), *gpu("PCIe RX Throughput", [5])]
    answer = ask(make_run(tmp_path / "3" / "run", {0: {**ANCHOR, "gpu_metrics": samples}}), "nvlink_sum")
    assert cells(answer, "Metric", "Count", "Mean", "Max") == [
        ("NVLink RX Requests User Data [Throughput %]", 2, 20.0, 30.0)
    ]


NICS = {
    "nic_metrics": [
        nic(0, 50, "Bytes sent", 1048.576), nic(50, 60, "Bytes sent", 0), nic(0, 100, "Bytes received", 2 * 1048.576),
        nic(0, 100, "Send waits", 3, "mlx5_1", 1), nic(0, 100, "Packets", 8, "mlx5_1", 1),
    ],
    "switch_metrics": [nic(0, 10, "Bytes sent", 1048.576, guid=-1)],
}  # fmt: skip


def test_traffic_bin_by_bin_in_numbers_and_of_two_kinds(tmp_path):
    run = make_run(tmp_path / "run", {0: {**ANCHOR, **NICS}})
    answer = ask(run, "network_traffic_map", {"bins": 2})
    one, other = "0x00000000000000ff", "0x0000000000000001"
    assert cells(answer, "Device", "Name", "GUID", "Duration", "Bytes Sent", "Bytes Recv", "Congestion") == [
        ("NIC", "mlx5_0", one, 0, 1.0, 2.0, None), ("NIC", "mlx5_0", one, 50, 0.0, 2.0, None),
        ("NIC", "mlx5_1", other, 0, None, None, 3000.0), ("NIC", "mlx5_1", other, 50, None, None, 3000.0),
        ("Switch", "", "", 0, 1.0, None, None), ("Switch", "", "", 50, None, None, None),
    ]  # fmt: skip
    assert [c.unit for c in answer.columns][1:4] == ["MiB/s", "MiB/s", "ticks/s"]
    ms = 1_000_000
    rows = [nic(0, ms, "Bytes sent", 10), nic(ms, 4 * ms, "Bytes sent", 30)]
    answer = ask(make_run(tmp_path / "2" / "run", {0: {"nic_metrics": rows}}), "network_sum")
    # 10 bytes per ms for 1 ms and 30 for 3 ms
    assert cells(answer, "Metric", "Count", "Mean", "Min", "Max", "Total") == [
        ("Bytes Sent", 2, 20_000.0, 10_000.0, 30_000.0, 100.0)
    ]
    rows = [
        nic(0, 100, "Ethernet bytes sent", 1048.576),
        nic(0, 50, "bytes sent", 2 * 1048.576),
        nic(0, 100, "Send waits", 3),
    ]
    run = make_run(tmp_path / "3" / "run", {0: {**ANCHOR, "nic_metrics": rows}})
    found = cells(ask(run, "network_sum"), "Metric", "Count", "Mean")
    assert found == [
        ("Congestion", 1, 3000.0),
        ("IB: Ethernet bytes sent", 1, 1048576.0),
        ("IB: bytes sent", 1, 2097152.0),
    ]
    answer = ask(run, "network_traffic_map", {"bins": 2})
    assert cells(answer, "Duration", "Bytes Sent", "Bytes Recv", "Congestion") == [
        (0, 3.0, None, 3000.0),
        (50, 1.0, None, 3000.0),
    ]


def counter(time, source, metric, value):
    return {"time": time, "source": source, "metric": metric, "value": value}


def test_counters_of_other_samplers_are_told_apart(tmp_path):
    samples = [
        counter(20, "efa_metrics", "rx_bytes (rdmap0)", 4.0), counter(40, "efa_metrics", "rx_bytes (rdmap0)", 6.0),
        counter(90, "efa_metrics", "rx_bytes (rdmap0)", 1.0),
        counter(10, "default", "defaults", 9.0),
        counter(10, "Storage", "Read bytes (lustre0)", 3.0), counter(10, "plugin", "NFS: reads", 2.0),
    ]  # fmt: skip
    run = make_run(tmp_path / "run", {0: {**ANCHOR, "generic_metrics": samples}})
    found = ask(run, "network_map_aws", {"bins": 2})
    assert cells(found, "Source", "Metric", "Duration", "Value") == [
        ("efa_metrics", "rx_bytes (rdmap0)", 0, 5.0), ("efa_metrics", "rx_bytes (rdmap0)", 50, 1.0),
    ]  # fmt: skip
    found = ask(run, "storage_util_map", {"bins": 1})
    assert cells(found, "Source", "Metric", "Value") == [
        ("Storage", "Read bytes (lustre0)", 3.0),
        ("plugin", "NFS: reads", 2.0),
    ]


def test_time_of_each_rank_by_itself(tmp_path):
    ranks = {
        r: {
            "kernels": [kernel(r * 1000, r * 1000 + 100)],
            "generic_metrics": [counter(r * 1000 + 10, "efa", "rx", r + 1.0)],
        }
        for r in range(2)
    }
    run = make_run(tmp_path / "run", ranks)
    found = ask(run, "network_map_aws", {"bins": 2, "disable_alignment": True})
    assert cells(found, "Duration", "Value", "File") == [
        (0, 1.0, "rank0"), (50, None, "rank0"), (0, 2.0, "rank1"), (50, None, "rank1"),
    ]  # fmt: skip
    found = ask(run, "network_map_aws", {"bins": 2})
    assert cells(found, "Duration", "Value") == [(0, 1.0), (550, None), (0, None), (550, 2.0)]


@pytest.mark.parametrize("name", ["gpu_metric_util_map", "network_traffic_map", "network_map_aws", "storage_util_map"])
def test_no_bins_are_refused(name, tmp_path):
    with pytest.raises(UsageError, match="expected 1 or more"):
        ask(make_run(tmp_path / "run", {0: ANCHOR}), name, {"bins": 0})

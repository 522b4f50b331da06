from __future__ import annotations

NETWORK = "TARGET_INFO_NETWORK_METRICS(metricsListId, metricsIdx, name TEXT, description TEXT, unit TEXT)"
NIC = "NET_NIC_METRIC(start, end, globalId, metricsListId, metricsIdx, value)"


def test_gpu_metrics_have_the_names_of_their_type(export, read):
    one, two = (1 << 48) | 0, (1 << 48) | 1
    got = read(
        export(
            {
                "GPU_METRICS(timestamp, typeId, metricId, value)": [
                    (5, one, 7, 50),
                    (None, one, 7, 1),
                    (6, two, 7, 60),
                    (7, two, 9, -1),
                ],
                "TARGET_INFO_GPU_METRICS(typeId, sourceId, typeName TEXT, metricId, metricName TEXT)": [
                    (one, 0, "t", 7, "SM Active"),
                    (two, 0, "t", 7, "SMs Active"),
                ],
            }
        )
    )
    assert got.column("gpu_metrics", "time") == [5, 6, 7]
    assert got.column("gpu_metrics", "metric") == ["SM Active", "SMs Active", "metric 9"]
    assert got.column("gpu_metrics", "value") == [50.0, 60.0, -1.0]
    gpus = got.column("devices", "gpu")
    assert [gpus[d] for d in got.column("gpu_metrics", "device")] == [0, 1, 1]


def test_adapters_by_guid_or_by_the_map(export, read):
    metrics = [(1, 0, "IB: Bytes sent", "", ""), (1, 1, "IB: Send waits", "", "")]
    rows = [(1, 2, -77, 1, 0, 10), (2, 3, 5, 1, 1, 20), (3, 4, 6, 1, 0, 30)]
    for guid in ("GUID", "globalId"):
        got = read(
            export(
                {
                    NIC: rows,
                    NETWORK: metrics,
                    f"TARGET_INFO_NIC_INFO({guid}, stateName TEXT, nicId, name TEXT)": [
                        (-77, "x", 0, "mlx5_0"),
                        (88, "x", 1, "mlx5_1"),
                    ],
                    "NIC_ID_MAP(nicId, globalId)": [(1, 5)],
                }
            )
        )
        assert got.column("nic_metrics", "nic") == ["mlx5_0", "mlx5_1", None]
        assert got.column("nic_metrics", "guid") == [-77, 88, 6]
        assert got.column("nic_metrics", "metric") == ["IB: Bytes sent", "IB: Send waits", "IB: Bytes sent"]
        assert got.column("nic_metrics", "value") == [10.0, 20.0, 30.0]


def test_switch_metrics(export, read):
    got = read(
        export({f"NET_IB_SWITCH_METRIC{NIC[14:]}": [(1, 2, 99, 1, 0, 10)], NETWORK: [(1, 0, "IB: Send waits", "", "")]})
    )
    (row,) = got.rows("switch_metrics")
    assert (row["guid"], row["metric"], row["value"], row["start"], row["end"]) == (99, "IB: Send waits", 10.0, 1, 2)


def test_samples_have_the_top_of_their_stack(export, read, tid):
    got = read(
        export(
            {
                "COMPOSITE_EVENTS(id, start, cpu, threadState, globalTid, cpuCycles)": [
                    (4, 10, 3, 1, tid(9, 9), 500),
                    (2, 11, 1, 1, tid(9, 10), 600),
                    (8, 12, 1, 1, tid(9, 10), 700),
                ],
                "SAMPLING_CALLCHAINS(id, symbol, module, stackDepth)": [(2, 1, 2, 0), (2, 3, 2, 1), (4, 3, None, 0)],
            },
            strings={1: "memcpy", 2: "libc.so.6", 3: "main"},
        )
    )
    assert got.column("samples", "symbol") == ["main", "memcpy", None]
    assert got.column("samples", "module") == [None, "libc.so.6", None]
    assert got.column("samples", "cycles") == [500, 600, 700]
    assert got.column("samples", "cpu") == [3, 1, 1]

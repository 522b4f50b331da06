from __future__ import annotations

import pytest

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, demangledName)"
GPU = "TARGET_INFO_GPU(vmId, id, name TEXT, busLocation TEXT, uuid TEXT, cuDevice, smCount, totalMemory, computeMajor)"
MAP = "TARGET_INFO_CUDA_DEVICE(gpuId, cudaId, pid, uuid TEXT)"
GPUS = [
    (0, 3, "A100", "0000:03:00.0", "aaaa", 0, 108, 42_000_000_000, 8),
    (0, 2, "H100", "0000:41:00.0", "bbbb", 1, 132, 84_000_000_000, 9),
]


def kernels(*pairs):
    return [(i, i + 1, device, 7, i, pid, 1) for i, (pid, device) in enumerate(pairs)]


def test_ordinals_are_mapped_by_process(export, read, tid):
    tables = {KERNEL: kernels((tid(8), 0), (tid(9), 0)), GPU: GPUS, MAP: [(3, 0, 8, None), (2, 0, 9, None)]}
    got = read(export(tables))
    assert got.column("kernels", "device") == [0, 1]
    assert [(d["gpu"], d["ordinal"], d["uuid"], d["name"], d["sm_count"]) for d in got.rows("devices")] == [
        (3, 0, "aaaa", "A100", 108),
        (2, 0, "bbbb", "H100", 132),
    ]
    assert got.column("devices", "memory_bytes") == [42_000_000_000, 84_000_000_000]
    assert [(p.pid, p.gpu, p.device_ordinal) for p in got.report.processes] == [(8, True, 0), (9, True, 0)]


def test_one_gpu_of_two_processes_is_one_device(export, read, tid):
    tables = {KERNEL: kernels((tid(8), 0), (tid(9), 0)), GPU: GPUS, MAP: [(2, 0, 8, None), (2, 0, 9, None)]}
    got = read(export(tables))
    assert got.column("kernels", "device") == [0, 0]
    assert got.column("devices", "uuid") == ["bbbb"]


def test_without_a_map_by_the_cuda_ordinal(export, read, tid):
    got = read(export({KERNEL: kernels((tid(8), 1), (tid(8), 0)), GPU: GPUS}))
    assert got.column("devices", "ordinal") == [1, 0]
    assert got.column("devices", "bus_id") == ["0000:41:00.0", "0000:03:00.0"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["bbbb", None]),  # of ordinal 1 nothing is known but that number
        ("1,0", ["bbbb", "aaaa"]),
        (" GPU-BB , 0", ["bbbb", "aaaa"]),
        ("0,1", ["aaaa", "bbbb"]),
        ("7", ["aaaa", "bbbb"]),
        ("MIG-bbbb", ["aaaa", "bbbb"]),
        ("GPU-", ["aaaa", "bbbb"]),
        ("", ["aaaa", "bbbb"]),
    ],
)
def test_without_a_map_by_the_devices_that_are_visible(export, read, tid, visible, expected):
    said = {
        "META_DATA_CAPTURE(name TEXT, value TEXT)": [
            ("PROCESS_0:ENVIRONMENT_VARIABLE", f'CUDA_VISIBLE_DEVICES="{visible}"')
        ]
    }
    got = read(export({KERNEL: kernels((tid(8), 0), (tid(8), 1)), GPU: GPUS, **said}))
    uuids = dict(zip(got.column("devices", "device"), got.column("devices", "uuid"), strict=True))
    assert [uuids[d] for d in got.column("kernels", "device")] == expected
    mapped = read(export({KERNEL: kernels((tid(8), 0)), GPU: GPUS, MAP: [(3, 0, 8, None)], **said}))
    assert mapped.column("devices", "uuid") == ["aaaa"]


def test_without_any_table_by_the_ordinal_alone(export, read, tid):
    got = read(export({KERNEL: kernels((tid(8), 0), (tid(9), 1), (tid(9), 0))}))
    assert got.column("kernels", "device") == [0, 1, 0]
    assert [(d["ordinal"], d["uuid"], d["name"], d["gpu"]) for d in got.rows("devices")] == [
        (0, None, None, None),
        (1, None, None, None),
    ]


def test_a_map_with_a_uuid_alone(export, read, tid):
    got = read(export({KERNEL: kernels((tid(8), 0), (tid(9), 0)), MAP: [(0, 0, 8, "cccc"), (1, 0, 9, "dddd")]}))
    assert got.column("devices", "uuid") == ["cccc", "dddd"]
    assert got.column("kernels", "device") == [0, 1]


def test_the_tables_of_2020(export, read, tid):
    tables = {
        KERNEL: kernels((tid(8), 1)),
        "TARGET_INFO_GPU(vmId, name TEXT, busLocation TEXT, isDiscrete, deviceId)": [
            (0, "RTX", "0000:15:00.0", 1, 0),
            (0, "RTX", "0000:2d:00.0", 1, 1),
        ],
        "TARGET_INFO_CUDA_GPU(name TEXT, pciBusId TEXT, deviceId, pid, numMultiprocessors, coreClockRate)": [
            ("Quadro RTX", "0000:15:00.0", 0, 8, 72, 1),
            ("Quadro RTX", "0000:2D:00.0", 1, 8, 73, 1),
        ],
    }
    (device,) = read(export(tables)).rows("devices")
    assert (device["ordinal"], device["bus_id"], device["sm_count"], device["uuid"]) == (1, "0000:2d:00.0", 73, None)


def test_samples_of_a_gpu_and_its_kernels_share_a_device(export, read, tid):
    tables = {
        KERNEL: kernels((tid(8), 1)),
        GPU: GPUS,
        "GPU_METRICS(timestamp, typeId, metricId, value)": [(5, (1 << 48) | 2, 7, 50), (6, (1 << 48) | 3, 7, 60)],
        "TARGET_INFO_GPU_METRICS(typeId, metricId, metricName TEXT)": [
            ((1 << 48) | 2, 7, "SMs Active"),
            ((1 << 48) | 3, 7, "SMs Active"),
        ],
    }
    got = read(export(tables))
    assert got.column("kernels", "device") == [0]
    assert got.column("gpu_metrics", "device") == [0, 1]
    assert [(d["gpu"], d["ordinal"]) for d in got.rows("devices")] == [(2, 1), (3, 0)]


def test_an_impossible_ordinal_is_no_device(export, read, tid):
    got = read(export({KERNEL: kernels((tid(8), 0xFFFFFFFF), (tid(8), -1), (tid(8), 0))}))
    assert got.column("kernels", "device") == [None, None, 0]


def test_the_socket_of_each_cpu_and_the_numa_node_of_each_gpu(export, read, tid):
    items = '{"items":[{"cpuid":1,"socket":8,"maxfreqhz":1},{"cpuid":0,"socket":0},{"cpuid":-1,"socket":0},{"cpuid":2,"socket":9e99}]}'  # noqa: E501
    system = "TARGET_INFO_SYSTEM_ENV(name TEXT, value TEXT)"
    gpu = "TARGET_INFO_GPU(id, uuid TEXT, cuDevice, numaNodeId)"
    tables = {KERNEL: kernels((tid(8), 0), (tid(8), 1)), gpu: [(3, "aaaa", 0, 1), (2, "bbbb", 1, None)]}
    got = read(export({**tables, system: [("CpuInfo", items)]}))
    assert got.rows("cpus") == [{"cpu": 0, "socket": 0}, {"cpu": 1, "socket": 8}]
    assert got.column("devices", "numa_node") == [1, None]


@pytest.mark.parametrize("text", ["", "[", "{}", "[]", '{"items":[{"cpuid":0}]}', '{"items":3}', None])
def test_damaged_facts_of_cpus_are_none(export, read, tid, text):
    got = read(
        export({KERNEL: kernels((tid(8), 0)), "TARGET_INFO_SYSTEM_ENV(name TEXT, value TEXT)": [("CpuInfo", text)]})
    )
    assert got.rows("cpus") == []

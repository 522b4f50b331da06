"""GPU logs against the samples that they were written from, whole and damaged."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.thorough import cases
from tests.together import together

from alltrace.readers.gpu_log.read import GpuLog, read_gpu_log
from alltrace.readers.gpu_log.sample import VALUES, stamp_of, value_of
from alltrace.trace.errors import InputError

UUIDS = [f"GPU-{n:08x}-1111-2222-3333-444444444444" for n in range(4)]
HEADER = (
    "timestamp, uuid, clocks.current.sm [MHz], clocks.current.memory [MHz], power.draw [W], temperature.gpu, "
    "clocks_event_reasons.active"
)
START = datetime(2026, 11, 25, 9, 30, 4, 123000, tzinfo=UTC)
BEGIN_NS = int(START.timestamp()) * 10**9 + 123_000_000


def values(n, gpu):
    return 1980.0 - 15 * n, 2619.0, 699.81 - n, 50.0 + gpu, float(4 if n % 2 else 0)


def row(n, gpu, name, *, units=True):
    """Line `n` of a GPU, as nvidia-smi prints it."""
    sm, memory, power, temperature, reasons = values(n, gpu)
    at = (START + timedelta(milliseconds=100 * n)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
    mhz, watt = (" MHz", " W") if units else ("", "")
    return (
        f"{at}, {name}, {sm:.0f}{mhz}, {memory:.0f}{mhz}, {power:.2f}{watt}, {temperature:.0f}, 0x{int(reasons):016x}"
    )


def lines(names=UUIDS[:2], count=5, **form):
    return [row(n, gpu, name, **form) for n in range(count) for gpu, name in enumerate(names)]


def read(folder, text):
    path = folder / "gpu.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_gpu_log(str(path))


def samples(log: GpuLog):
    """(GPU's row, time, values) of each sample."""
    columns = [log.values[name].tolist() for name in VALUES]
    return list(zip(log.gpu.tolist(), log.time_ns.tolist(), zip(*columns, strict=True), strict=True))


WANTED = [(gpu, BEGIN_NS + 100_000_000 * n, values(n, gpu)) for gpu in range(2) for n in range(5)]


@pytest.mark.parametrize(
    "text",
    [
        [HEADER, *lines()],
        [HEADER.replace(" [MHz]", "").replace(" [W]", ""), *lines(units=False)],
        lines(),
        lines(units=False),
        [HEADER.replace("event_reasons", "throttle_reasons"), *lines()],
        [HEADER, *lines()[:4], "", HEADER, *lines()[4:]],
    ],
    ids=["csv", "nounits", "noheader", "noheader,nounits", "older name", "continued"],
)
def test_every_form_of_csv_is_read(tmp_path, text):
    log = read(tmp_path, "\n".join(text) + "\n")
    assert (log.format, log.local, log.bad_lines) == ("nvidia-smi", True, 0)
    assert [g.uuid for g in log.gpus] == UUIDS[:2]
    assert samples(log) == WANTED


@pytest.mark.parametrize(
    ("names", "attribute", "wanted"),
    [
        (["0", "1"], "number", [0, 1]),
        (["00000000:17:00.0", "00000001:CA:00.0"], "bus_id", ["0000:17:00.0", "0001:ca:00.0"]),
    ],
)
@pytest.mark.parametrize("header", [True, False])
def test_gpus_without_uuid(tmp_path, names, attribute, wanted, header):
    column = {"number": "index", "bus_id": "pci.bus_id"}[attribute]
    log = read(tmp_path, "\n".join([*([HEADER.replace("uuid", column)] if header else []), *lines(names)]) + "\n")
    assert [getattr(g, attribute) for g in log.gpus] == wanted
    assert samples(log) == WANTED


def test_columns_may_come_in_any_order_and_more_of_them(tmp_path):
    head = "index, utilization.gpu [%], timestamp, power.draw [W], name, uuid"
    body = [f"{g}, 97 %, 2026/11/25 09:30:04.123, 500.5 W, NVIDIA H100, {UUIDS[g]}" for g in range(2)]
    log = read(tmp_path, "\n".join([head, *body]) + "\n")
    assert [(g.uuid, g.number) for g in log.gpus] == [(UUIDS[0], 0), (UUIDS[1], 1)]
    assert log.values["power_w"].tolist() == [500.5, 500.5]
    assert all(isnan(v) for v in log.values["sm_clock_mhz"])


@pytest.mark.parametrize("nothing", ["[N/A]", "N/A", "[Not Supported]", "ERR!", "", "[Unknown Error]"])
def test_what_a_gpu_does_not_tell_is_nothing(tmp_path, nothing):
    line = row(0, 0, UUIDS[0]).split(", ")
    line[4] = nothing
    log = read(tmp_path, f"{HEADER}\n{', '.join(line)}\n")
    assert isnan(log.values["power_w"][0])
    assert log.values["sm_clock_mhz"][0] == 1980


def test_a_last_line_without_an_end_is_left_out(tmp_path):
    text = "\n".join([HEADER, *lines()])
    for cut in range(len(text) - 20, len(text) + 1):
        log = read(tmp_path, text[:cut])
        assert (len(log.gpu), log.bad_lines) == (9, 0)


def test_lines_that_are_not_understood_are_counted(tmp_path):
    log = read(
        tmp_path, "\n".join([HEADER, *lines(), "Unable to determine the device handle", "a, b, c, d, e, f, g"]) + "\n"
    )
    assert (len(log.gpu), log.bad_lines) == (10, 2)
    assert log.first_bad == "line 12: it has 1 columns, not 7"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        ("hello\n", "its first line is not from"),
        (f"{HEADER}\n", "it has no sample"),
        ("timestamp, name\n2026/11/25 09:30:04.123, H100\n", "no uuid, index or pci.bus_id"),
        ("timestamp, uuid\n2026/11/25 09:30:04.123, GPU-12345678\n", "no clock, power, temperature"),
        (f"{HEADER}\n" + "x\n" * 9 + row(0, 0, UUIDS[0]) + "\n", "most of its lines are not samples"),
        ("#Entity   SMCLK   POWER\nID\nGPU 0  1980  700.1\n", "dcgmi does not print times; record with"),
        ("#Entity   FBUSD\nID\n1764063004.5 GPU 0  1980\n", "no clock, power"),
        ('DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-12345678"} 1980\n', "the exporter does not send times"),
    ],
)
def test_what_is_no_log_is_an_error_that_says_how_to_record_one(tmp_path, text, said):
    with pytest.raises(InputError, match="nvidia-smi --query-gpu=timestamp,uuid") as error:
        read(tmp_path, text)
    assert said in str(error.value)
    assert "gpu.csv" in str(error.value)


def test_dmon_with_times(tmp_path):
    body = [
        f"{BEGIN_NS // 10**9 + n}.123 GPU {gpu}     {v[0]:.0f}   {v[1]:.0f}   {v[2]:.3f}   {v[3]:.0f}   {v[4]:.0f}"
        for n in range(3)
        for gpu in range(2)
        for v in [values(n, gpu)]
    ]
    head = [f"{BEGIN_NS // 10**9}.001 #Entity   SMCLK   MMCLK   POWER   TMPTR   DVCCTR", f"{BEGIN_NS // 10**9}.001 ID"]
    log = read(tmp_path, "\n".join([*head, *body[:3], *head, *body[3:]]) + "\n")
    assert (log.format, log.local, log.bad_lines) == ("dcgmi dmon", False, 0)
    assert [g.number for g in log.gpus] == [0, 1]
    assert samples(log) == [(gpu, BEGIN_NS + 10**9 * n, values(n, gpu)) for gpu in range(2) for n in range(3)]


def test_the_exporter_with_times(tmp_path):
    names = ("SM_CLOCK", "MEM_CLOCK", "POWER_USAGE", "GPU_TEMP", "CLOCK_THROTTLE_REASONS")
    text = "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
    for n in range(3):
        for name, value in zip(names, zip(*(values(n, g) for g in range(2)), strict=True), strict=True):
            for gpu in range(2):
                labels = f'gpu="{gpu}",UUID="{UUIDS[gpu]}",pci_bus_id="00000000:1{gpu}:00.0",device="nvidia{gpu}",Hostname="node7"'  # noqa: E501
                text += f"DCGM_FI_DEV_{name}{{{labels}}} {value[gpu]} {BEGIN_NS // 10**6 + 100 * n}\n"
        text += 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-12345678"} 17\n'
    log = read(tmp_path, text)
    assert (log.format, log.local, log.bad_lines) == ("DCGM exporter", False, 0)
    assert [(g.uuid, g.bus_id, g.number, g.host) for g in log.gpus] == [
        (UUIDS[g], f"0000:1{g}:00.0", g, "node7") for g in range(2)
    ]
    assert samples(log) == [(gpu, BEGIN_NS + 10**8 * n, values(n, gpu)) for gpu in range(2) for n in range(3)]


def test_packed_logs_are_read(tmp_path):
    packed = gzip.compress(("\n".join([HEADER, *lines()]) + "\n").encode())
    assert samples(read(tmp_path, packed)) == WANTED
    with pytest.raises(InputError, match="the gzip data ends early; everything before was read; expected a GPU log"):
        read(tmp_path, packed[:10])


@given(st.datetimes(datetime(1972, 1, 1), datetime(2199, 1, 1)), st.integers(-48, 56))
def test_times(at, quarters):
    zone = timedelta(minutes=15 * quarters)
    seconds = (at - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1000
    text = at.strftime("%Y/%m/%d %H:%M:%S.%f")
    assert stamp_of(text) == (seconds, True)
    sign, minutes = "-" if quarters < 0 else "+", abs(15 * quarters)
    told = f"{text.replace('/', '-').replace(' ', 'T')}{sign}{minutes // 60:02}:{minutes % 60:02}"
    assert stamp_of(told) == (seconds - zone // timedelta(microseconds=1) * 1000, False)


@together(
    "text", ["0026/11/25 09:30:04.123", "9026/11/25 09:30:04.123", "99999999999.5", "2026/13/25 09:30:04", "soon"]
)
def test_times_of_no_job(text):
    with pytest.raises(ValueError, match="time"):
        stamp_of(text)


@given(st.text(max_size=40))
def test_any_text_is_a_value_or_refused(text):
    for name in VALUES:
        try:
            value = value_of(name, text)
        except ValueError:
            continue
        assert value is None or -1e6 < value < 1 << 32


@settings(max_examples=cases(100, 300))
@given(st.data())
def test_a_damaged_log_gives_samples_that_were_there_or_an_error(tmp_path_factory, data):
    """Bytes are changed, cut out and put in; a line that is whole still tells the truth."""
    original = ("\n".join([HEADER, *lines()]) + "\n").encode()
    text, touched = bytearray(original), set()
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(len(HEADER) + 1, len(text) - 1))
        touched |= {original[:at].count(b"\n"), original[: at + 1].count(b"\n")}
        text[at] = data.draw(st.sampled_from(b"\x00\xff,-0x 9\r[aZ"))
    try:
        log = read(tmp_path_factory.mktemp("damaged"), bytes(text))
    except InputError:
        return
    found = {(log.gpus[g].uuid, t, v) for g, t, v in samples(log)}
    whole = [line for n, line in enumerate(lines()) if n + 1 not in touched]
    for line in whole:
        n, gpu = divmod(lines().index(line), 2)
        assert (UUIDS[gpu], BEGIN_NS + 10**8 * n, values(n, gpu)) in found
    for name, column in log.values.items():
        assert np.isfinite(column[~np.isnan(column)]).all(), name

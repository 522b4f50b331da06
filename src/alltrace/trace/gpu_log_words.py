"""What GPU logs are recorded with, and why a GPU's clocks are lower than they could be: NVML's clock event reasons.

Source: NVML API reference, `nvmlClocksEventReasons`, formerly throttle reasons; `DCGM_FI_DEV_CLOCKS_EVENT_REASONS` of
DCGM has the same bits.
"""

QUERY = "timestamp,uuid,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active"
COMMAND = f"nvidia-smi --query-gpu={QUERY} --format=csv -lms 100"
"""What records a log that has everything."""
LOG_ENDING = ".gpu-log.csv"
"""The end of a log's name that `capture exec --gpu-log` records next to the reports."""
OFFSET_SUFFIX = ".utc-offset"
"""The suffix to a log's name for the file with the offset of its local times to UTC."""

IDLE = 0x1
REASONS: dict[int, str] = {
    IDLE: "idle", 0x2: "application clocks setting", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake",
    0x100: "display clock setting",
}  # fmt: skip
"""The name of each bit; `hardware slowdown` is set together with the thermal or the power-brake bit, the reason."""


def reason_names(bits: int) -> list[str]:
    """The reasons that are set in `bits`; a bit that NVML does not document as `bit 0x...`."""
    names = [name for bit, name in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    return names + [f"bit {1 << n:#x}" for n in range(rest.bit_length()) if rest >> n & 1]

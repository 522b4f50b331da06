"""Who each simulated rank is: host, process, device, and the clock that its report is written by."""

import uuid
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alltrace.synth.scenario import Scenario

JOB_START_UTC_NS = 1_767_272_400_000_000_000
"""UTC at true time 0 of every simulated job."""

_AUTOGRAD = 41


@dataclass(frozen=True)
class Identity:
    rank: int
    local_rank: int  # its place on its host
    host: int  # its host, 0-based
    host_name: str
    pid: int  # process number; its main thread has the same number
    autograd_tid: int  # number of the second thread
    device: int  # the device's index on the host
    ordinal: int  # the device's CUDA ordinal inside the process
    device_uuids: tuple[str, ...]  # UUIDs of all devices of the host by index
    offset_ns: int  # how far the host's clock is ahead at true time 0
    drift_ppm: float  # how much faster it runs
    session_start_ns: int  # true time at which the report's time is 0
    stamp_error_ns: int  # how far the report's UTC stamp is ahead of the host's clock at that moment
    system_clock_ns: int  # the host's monotonic clock at that moment

    @property
    def device_uuid(self) -> str:
        return self.device_uuids[self.device]

    @property
    def utc_stamp_ns(self) -> int:
        """UTC at the report's time 0, as recorded in the report."""
        return JOB_START_UTC_NS + self.host_clock_ns(self.session_start_ns) + self.stamp_error_ns

    @property
    def report_offset_ns(self) -> int:
        """How far `utc_stamp_ns` plus a report's time is ahead of true UTC at true time 0."""
        return self.offset_ns + self.stamp_error_ns

    def host_clock_ns(self, true_ns: int) -> int:
        """What the host's clock shows, less `JOB_START_UTC_NS`."""
        return true_ns + self.offset_ns + round(true_ns * self.drift_ppm * 1e-6)

    def stamps(self, true_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Report times, nanoseconds since the session's start by the host's clock, of true times; the order is kept."""
        drifted = np.rint(true_ns * (self.drift_ppm * 1e-6)).astype(np.int64)
        stamps: NDArray[np.int64] = true_ns + drifted + (self.offset_ns - self.host_clock_ns(self.session_start_ns))
        return stamps


def identities(scenario: Scenario) -> list[Identity]:
    """The identity of every rank, by rank; the first host's clock is the true one."""
    layout, clocks, environment = scenario.layout, scenario.clocks, scenario.environment
    rng = np.random.default_rng((scenario.seed, 6))
    bound = int(clocks.offset_ms * 1e6)
    offsets = np.rint(rng.uniform(-bound, bound, layout.hosts)).astype(np.int64)
    drifts = rng.uniform(-clocks.drift_ppm, clocks.drift_ppm, layout.hosts).round(3)
    offsets[0] = drifts[0] = 0
    boots_ns = rng.integers(3_600_000_000_000, 30 * 86_400_000_000_000, layout.hosts)
    errors = np.rint(rng.standard_normal(layout.ranks) * clocks.stamp_error_ms * 1e6).astype(np.int64)
    starts_ns = -np.rint(rng.uniform(1e9, clocks.start_spread_s * 1e9, layout.ranks)).astype(np.int64)
    pids = rng.integers(2_000, 4_000_000, size=layout.ranks)
    devices = [
        tuple(str(uuid.UUID(bytes=rng.bytes(16), version=4)) for _ in range(layout.ranks_per_host))
        for _ in range(layout.hosts)
    ]
    identities_by_rank = []
    taken: set[tuple[int, int]] = set()
    for rank in range(layout.ranks):
        host, local = layout.host_of(rank), layout.local_rank(rank)
        pid = 100 + 7 * local if environment.shared_pids else int(pids[rank])
        while not environment.shared_pids and taken & {(host, pid), (host, pid + _AUTOGRAD)}:
            pid += 1  # no two threads of a host have one number
        taken |= {(host, pid), (host, pid + _AUTOGRAD)}
        drift, start_ns, offset_ns = float(drifts[host]), int(starts_ns[rank]), int(offsets[host])
        identities_by_rank.append(
            Identity(
                rank=rank,
                local_rank=local,
                host=host,
                host_name=f"node{host + 1:03d}",
                pid=pid,
                autograd_tid=pid + _AUTOGRAD,
                device=local,
                ordinal=0 if environment.visible_devices else local,
                device_uuids=devices[host],
                offset_ns=offset_ns,
                drift_ppm=drift,
                session_start_ns=start_ns,
                stamp_error_ns=int(errors[rank]),
                system_clock_ns=int(boots_ns[host]) + start_ns + round(start_ns * drift * 1e-6),
            )
        )
    return identities_by_rank

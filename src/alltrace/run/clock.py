"""From the time in a rank's files to the run's aligned clock: an affine map per rank, applied when a table is read.

A file holds ns since the rank's time base on its host's clock. With `base` that time base (UTC, host clock), `zero` the
UTC of the run's time 0 on the first host's clock, and the host's clock ahead of the first host's by `offset` at the
run's start and running faster by `drift`::

    host  = t + (base - stamp_error - zero)           ns since the run's zero, by the host's clock
    run   = host - offset - round(drift * (host - offset)) - origin

Here `zero` is when the first report's session started, and `origin` when the run's first event did, counted from there:
time 0 of a run is its first event. Without an origin, times are as in the profiler's own tools, on the session's clock.

So drift is the relative rate error, and the rounding keeps times whole. The map never changes the order of two times.
"""

from typing import Any, NamedTuple

from alltrace.run.manifest import Manifest, RankRecord


class ClockMap(NamedTuple):
    """t_run = u - round(drift * u) - origin_ns with u = t_file + shift_ns."""

    shift_ns: int  # what is added to a time in the file
    drift: float = 0.0  # relative rate error of the host's clock (1e-6 is 1 ppm)
    origin_ns: int = 0  # the time that becomes 0, counted from the session's start

    def apply(self, times: Any) -> Any:
        """The run's time of `times`, an int64 NumPy array of file times; a new array."""
        import numpy as np

        if not self.drift:
            return times + np.int64(self.shift_ns - self.origin_ns)
        shifted = times + np.int64(self.shift_ns)
        shifted -= np.rint(shifted * self.drift).astype(np.int64)
        if self.origin_ns:
            shifted -= np.int64(self.origin_ns)
        return shifted

    def lengths(self, lengths: Any) -> Any:
        """How long by the run's clock is what took `lengths` by the host's: a new int64 array of ns."""
        import numpy as np

        return lengths - np.rint(lengths * self.drift).astype(np.int64)

    def apply_one(self, time_ns: int) -> int:
        """The run's time of one file time."""
        shifted = time_ns + self.shift_ns
        return shifted - round(shifted * self.drift) - self.origin_ns

    def invert_one(self, run_ns: int) -> int:
        """The file time of the run time `run_ns`, to within a nanosecond."""
        session_ns = run_ns + self.origin_ns
        if not self.drift:
            return session_ns - self.shift_ns
        # the correction alone is small enough to be exact in floating point; the second step takes its own error away
        time_ns = session_ns + round(session_ns * (self.drift / (1.0 - self.drift))) - self.shift_ns
        return time_ns + run_ns - self.apply_one(time_ns)

    def sql(self, column: str) -> str:
        """The same map as an SQL expression over `column`."""
        if not self.drift:
            return f"({column} + CAST({self.shift_ns - self.origin_ns} AS BIGINT))"
        shifted = f"({column} + CAST({self.shift_ns} AS BIGINT))"
        return (
            f"({shifted} - CAST(round_even({shifted} * {self.drift!r}::DOUBLE, 0) AS BIGINT) - CAST({self.origin_ns} AS"
            " BIGINT))"
        )


def clock_map(manifest: Manifest, rank: RankRecord) -> ClockMap:
    """The map from the time in the files of `rank` to the aligned clock, with time 0 at the session's start."""
    clock = manifest.clock_of_host.get(rank.host)
    base, zero = rank.time_base_utc_ns, manifest.zero_utc_ns
    # a report's own stamp can be off by milliseconds even from its host's clock
    between = base - zero - rank.stamp_error_ns if base is not None and zero is not None else -rank.stamp_error_ns
    if clock is None:
        return ClockMap(between)
    return ClockMap(between - clock.offset_ns, clock.drift_ppm * 1e-6)

"""The numbers that the alignment takes from measurements; every other number in it follows from the run at hand.

"Measured" is on real recordings of two to four GPUs on one machine: 334 instances of all-gather, reduce-scatter,
all-reduce and all-to-all.
"""

MAD_TO_SIGMA = 1.4826
"""Of a normal distribution, the standard deviation over the median absolute deviation."""

OUTLIER_SIGMAS = 5.0
"""Ends further off are of another operation. Measured ends scatter by up to 3.6 times their median spread; what lies
beyond, such as all-reduces that end in one of two modes, is 40 times it and more."""

COVERAGE = 0.95
"""How often the interval of a clock's offset must hold the truth: what `error_ns` is defined by."""

WRONG_SHARE = 0.02
"""The share of messages that bounds leave out as matched wrongly: an inference that finds fewer right does not name
partners."""

OTHER_RECORDING_NS = 600_000_000_000
"""Clocks further apart are of different recordings. Clocks of machines without NTP drift by at most 20 ppm, 10 minutes
a year."""

MOST_RATE = 20e-6
"""The rate of such clocks: a fit that knows a rate less exactly than this tells nothing of it."""

SHORTEST_NS = 1_000
"""A shorter operation cannot have waited for another device."""

LEAST_WORK = 0.05
"""A device with a smaller share of the kernels of the busiest one of its process is touched, and not worked with."""

LEAST_LAUNCHED = 0.1
"""Of a thread's launches, those to a device that has a smaller share are an exception."""

BY_MODES = 0.2
"""How much likelier (logarithm, of one operation of a stream) a wrong partition of streams can be because ends scatter
in modes. In jobs without names that were simulated with ends as measured, and three times as far, the right partition
was in 11 of 120 places of a step less likely than a wrong one, by 0.006 to 0.14."""

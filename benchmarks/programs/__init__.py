"""Random training programs, executed on a model of hosts, devices and links, with causes of lost time of known cost.

Nothing here shares code with `alltrace` but the measured scatter of ends, which its simulator has too: it is a second
source of truth. `draw` draws a program, `training` makes instructions of it, `machine` executes them, `losses` executes
it again without each cause, `nsys_file` writes what a profiler would have seen.
"""

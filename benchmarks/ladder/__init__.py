"""Known causes of lost time on this machine: measured without a profiler, recorded, and diagnosed."""

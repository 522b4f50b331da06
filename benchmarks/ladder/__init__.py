"""Known causes of lost time on the machine at hand: measured without a profiler, recorded, and diagnosed from the recording."""

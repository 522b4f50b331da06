"""Real processes with a planted cause: what it costs without a profiler, and what `diagnose` says of a recording."""

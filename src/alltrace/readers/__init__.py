"""One package per input format, each turning a report into the canonical tables."""

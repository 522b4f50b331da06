"""Sixteen small runs and what every question answers about them: `python -m tests.recorded make` and `record`."""

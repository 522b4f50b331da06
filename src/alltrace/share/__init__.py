"""Copies of reports, runs and logs without what must not be shared."""

"""Traces in the formats of other tools, written from a run on its aligned clock."""

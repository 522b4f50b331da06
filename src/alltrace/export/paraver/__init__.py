"""Traces for Paraver: .prv, .pcf and .row, configurations, and a checker."""

"""Runs a function over many items and hands back the results as they come: in this process or in a pool of processes.

It knows nothing about traces.
"""

"""Fuzz tests: mutated input to each compiled loop through the function that callers use, under sanitizers.

A target is a module of `tests.fuzz.targets` with two functions: `corpus()` makes sound inputs by code, and `run(data)`
takes any bytes. On sound inputs it returns; on others it may also raise an AlltraceError. Every other exception, a
crash, a report of a sanitizer, and an input that takes too long is a failure. The input with number N of a seed is
always the same.

    python -m tests.fuzz run --inputs 100000 --seed 1 --targets sqlite,kineto
    python -m tests.fuzz replay build/fuzz-failures/sqlite-1-4711.bin
"""

"""Rows for recipes that follow GPU work to its calls and ranges."""

from __future__ import annotations

from typing import Any

from tests.making import kernel

MEGA = 1 << 20


def call(start: int, end: int, correlation: int, name: str = "cudaLaunchKernel", **others: Any) -> dict[str, Any]:
    """A row of `api`."""
    return {"start": start, "end": end, "correlation": correlation, "name": name, "kind": "runtime", **others}


def launched(kernels: list[tuple[str, int, int, int]], **others: Any) -> list[dict[str, Any]]:
    """Rows of `kernels` from name, correlation, start and end."""
    return [kernel(start, end, name, correlation=correlation, **others) for name, correlation, start, end in kernels]


def operator(name: str, start: int, end: int, **others: Any) -> dict[str, Any]:
    """A row of `ranges` for an operator."""
    return {"start": start, "end": end, "name": name, "domain": "cpu_op", "kind": "pushpop", **others}


def module(name: str, start: int, end: int) -> dict[str, Any]:
    """A row of `ranges` for a module."""
    return {"start": start, "end": end, "name": f"nn.Module: {name}", "domain": "python_function", "kind": "pushpop"}


def frame(name: str, start: int, end: int) -> dict[str, Any]:
    """A row of `frames`."""
    return {"start": start, "end": end, "name": name}

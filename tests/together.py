"""Many quick cases as one test, which lists all that are wrong: a test of its own costs more than to look up a word."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def together(
    names: str | tuple[str, ...], values: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test for all values, as `pytest.mark.parametrize` does, but in one test; only for tests without state of
    their own.

    Args:
        names: The arguments of the test, separated by commas or as a tuple.
        values: For each case its value, or as many as there are names.
    """
    arguments = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    several = len(arguments) > 1 or not isinstance(names, str)
    cases = [tuple(v) if several else (v,) for v in values]
    if not cases or any(len(case) != len(arguments) for case in cases):
        raise ValueError(f"no cases, or one without a value for each of {', '.join(arguments)}")

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @wraps(check)
        def every_case(*own: Any, **others: Any) -> None:
            failures: list[tuple[str, BaseException]] = []
            for case in cases:
                given = dict(zip(arguments, case, strict=True))
                try:
                    check(*own, **others, **given)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - it is raised again below
                    failures.append((", ".join(f"{n}={v!r}" for n, v in given.items()), error))
            if failures:
                words = (f"{case}: {type(error).__name__}: {error}" for case, error in failures)
                raise AssertionError(f"{len(failures)} of {len(cases)} cases:\n" + "\n".join(words)) from failures[0][1]

        signature = inspect.signature(check)
        left = [p for n, p in signature.parameters.items() if n not in arguments]
        every_case.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return every_case

    return decorate

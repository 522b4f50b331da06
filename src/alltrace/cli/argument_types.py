"""Types of arguments that several verbs take."""

from __future__ import annotations

import argparse
import re

_NUMBER = re.compile(r"-?[0-9]{1,18}")


def positive(text: str) -> int:
    """An argument that is a whole number from 1 up."""
    return _whole(text, 1)


def not_negative(text: str) -> int:
    """An argument that is a whole number from 0 up."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected a whole number from {least} up")
    return int(text)

"""Types of arguments that several verbs take."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

_NUMBER = re.compile(r"-?[0-9]{1,18}")


def positive(text: str) -> int:
    """An argument that is a whole number from 1 up."""
    return _whole(text, 1)


def not_negative(text: str) -> int:
    """An argument that is a whole number from 0 up."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected a whole number of {least} or more")
    return int(text)


def file_or_output(text: str) -> Path | None:
    """An argument that names a file to write; None for `-`, which is standard output."""
    return None if text == "-" else Path(text)


def place(text: str) -> Path:
    """An argument that names a file or folder to write; standard output is not accepted."""
    if text == "-":
        raise argparse.ArgumentTypeError("it is '-', but this output cannot go to standard output; expected a file name")
    return Path(text)


def folder(text: str) -> str:
    """An argument that names a folder to write, here or at a URL."""
    place(text)
    return text

"""Types of arguments that several verbs take."""

import argparse
from pathlib import Path

from alltrace.trace.options import count

positive = count("number", None, "").from_text
"""An argument that is a whole number from 1 up."""


def file_or_output(text: str) -> Path | None:
    """An argument that names a file to write; None for `-`, which is standard output."""
    return None if text == "-" else Path(text)


def place(text: str) -> Path:
    """An argument that names a file or folder to write; standard output is not accepted."""
    if text == "-":
        raise argparse.ArgumentTypeError(
            "it is '-', but this output cannot go to standard output; expected a file name"
        )
    return Path(text)


def folder(text: str) -> str:
    place(text)
    return text

"""The entry point: picks the verb, and is the one place that turns errors into a sentence and an exit code."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from alltrace import __version__
from alltrace.trace.errors import EXIT_DEFECT, EXIT_DONE, EXIT_INPUT, EXIT_USAGE, AlltraceError, UsageError, printable

_INTERRUPTED = 130
_DESCRIPTION = """\
Every rank, one trace: merges the profiler reports of a distributed GPU run and
says where the time went."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (see the table in docs/cli.md)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _take_closed_places()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal's encoding lacks is shown escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()  # here, where a reader that is gone is not an error
        return code
    except AlltraceError as error:
        print(f"alltrace: {printable(str(error))}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # as DuckDB says of Ctrl-C
            return _failed(error)
        return _interrupted()
    except BrokenPipeError:  # the reader of our output has seen enough
        _drop_output()
        return EXIT_DONE
    except OSError as error:
        _drop_output()
        if error.errno == errno.EBADF and not error.filename:
            print(  # noqa: T201
                "alltrace: standard output is closed; write the answer to a file with -o, or open it", file=sys.stderr
            )
            return EXIT_INPUT
        what = printable(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
        print(f"alltrace: {what}; check the disk, the permissions and the limits, then run it again", file=sys.stderr)  # noqa: T201
        return EXIT_INPUT
    except Exception as error:  # noqa: BLE001
        return _failed(error)


def _interrupted() -> int:
    text = "interrupted; what was imported is kept, and running the same command again continues from there"
    print(f"alltrace: {text}", file=sys.stderr)  # noqa: T201
    return _INTERRUPTED


def _failed(error: Exception) -> int:
    """Report any other error: a limit of the machine, or a defect of alltrace, unlike a breached gate (1)."""
    limit = _limit_met(error)
    if limit is not None:
        print(f"alltrace: {limit}", file=sys.stderr)  # noqa: T201
        return EXIT_INPUT
    import traceback

    what = (
        f"alltrace {__version__} hit an internal error ({type(error).__name__}); report it with the lines above and the"
        " command"
    )
    for line in (*traceback.format_exc().splitlines(), f"alltrace: {what}"):
        print(printable(line), file=sys.stderr)  # noqa: T201
    return EXIT_DEFECT


def _take_closed_places() -> None:
    """Give outputs that are closed a place, so that no file takes it and is written to as if it were the output."""
    for place in range(3):
        try:
            os.fstat(place)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if place == 2 else os.O_RDONLY)  # the lowest one that is free: this one
    if sys.stdout is None:
        # cannot be written to; this is reported
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _limit_met(error: Exception) -> str | None:
    """What to do if a limit of the machine was met; None for other errors."""
    text = printable(str(error).partition("\n")[0])
    if isinstance(error, ImportError) and "failed to map segment" in text:
        if "permitted" in text or "denied" in text:
            return (
                f"{text}; this file system may not allow programs (noexec, or a policy against new code); "
                "install alltrace elsewhere"
            )
        return f"{text}; there is too little memory (`ulimit -v`) or, where there is enough, a policy against new code"
    full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException"
    # the last is what Python says of a library that found no memory while it was loaded
    if full or "can't start new thread" in text or "error return without exception set" in text:
        return (
            "memory ran out; select fewer ranks with --ranks, use fewer processes with --jobs, or raise the limit"
            " (`ulimit -v`)"
        )
    return None


def _drop_output() -> None:
    """Leave nothing for the interpreter to flush, which would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        _overview().print_help()
        return EXIT_DONE if arguments else EXIT_USAGE
    if arguments[0] in ("-V", "--version"):
        print(f"alltrace {__version__}")  # noqa: T201
        return EXIT_DONE
    if arguments[0] != "capture":  # what it starts is the user's, with the user's environment
        from alltrace.cli.startup import configure_process

        configure_process()
    from alltrace.cli.command import run_verb
    from alltrace.cli.engine import LASTING
    from alltrace.cli.registry import VERBS

    verb = next((v for v in VERBS if v.name == arguments[0]), None)
    if verb is None:
        raise _unknown(arguments[0])
    try:
        # some verbs read their last arguments with their own parser
        with LASTING:
            return run_verb(verb, f"alltrace {verb.name}", arguments[1:])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE


def _unknown(verb: str) -> UsageError:
    from alltrace.cli.registry import VERBS
    from alltrace.recipes.registry import names

    if verb in names():
        return UsageError(f"unknown verb {verb!r}; it is a recipe: `alltrace recipe {verb} RUN`")
    return UsageError.unknown("verb", verb, (v.name for v in VERBS))


def _overview() -> argparse.ArgumentParser:
    from alltrace.cli.command import listed
    from alltrace.cli.registry import SHELVES

    shelves = [
        "\n".join([f"{shelf}:", *listed(((v.name, v.help) for v in verbs), width=13)])
        for shelf, verbs in SHELVES.items()
    ]
    verbs = "\n\n".join(shelves)
    parser = argparse.ArgumentParser(
        prog="alltrace",
        usage="alltrace VERB ...",
        description=_DESCRIPTION,
        epilog=f"{verbs}\n\n`alltrace VERB --help` shows the options and an example.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())

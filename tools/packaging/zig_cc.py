"""`zig cc` as the C compiler of setuptools, which calls it with the flags that Python itself was built with.

Those flags are of another compiler, often of GCC with the options of a Linux distribution, and some of them are errors
to zig: only the ones that an extension needs are passed on. zig compiles for the processor that it runs on;
`-mcpu=baseline` makes the result run on every machine of the architecture, as with other compilers.
`ALLTRACE_ZIG_TARGET` names another architecture, as zig does: `aarch64-linux-gnu.2.17`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WITH_VALUE = {"-o", "-I", "-D", "-U"}
_KEPT = ("-c", "-shared", "-o", "-I", "-D", "-U", "-O", "-g", "-fPIC", "-fwrapv", "-fno-strict-overflow")


def understood(arguments: Iterable[str]) -> list[str]:
    """The files and the flags of `arguments` that zig understands and an extension needs, in their order."""
    return list(_understood(iter(arguments)))


def _understood(arguments: Iterator[str]) -> Iterator[str]:
    for argument in arguments:
        if not argument.startswith("-") or argument.startswith(_KEPT):
            yield argument
            if argument in _WITH_VALUE:
                yield from (value for value in (next(arguments, None),) if value is not None)


if __name__ == "__main__":
    target = os.environ.get("ALLTRACE_ZIG_TARGET")
    targeted = ["-target", target] if target else []
    sys.exit(
        subprocess.call([sys.executable, "-m", "ziglang", "cc", *targeted, "-mcpu=baseline", *understood(sys.argv[1:])])
    )

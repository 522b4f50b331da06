"""For compiled loops: eight bytes of an array at once, read and written as one number, wherever they lie."""

from __future__ import annotations

import sys
from typing import Any

from alltrace.trace.jit import intrinsic


@intrinsic
def load(_typing: Any, data: Any, at: Any) -> Any:
    """Takes a byte array and a place in it; the eight bytes there as a number of the machine, on most the first the lowest."""
    import numba as nb

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *arguments), align=1)

    return nb.uint64(data, at), generate


@intrinsic
def load_big(_typing: Any, data: Any, at: Any) -> Any:
    """Takes a byte array and a place in it; the eight bytes there as a signed number, the first the highest."""
    import numba as nb

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_address(context, builder, signature.args[0], *arguments), align=1)
        return builder.bswap(loaded) if sys.byteorder == "little" else loaded

    return nb.int64(data, at), generate


@intrinsic
def store(_typing: Any, data: Any, at: Any, number: Any) -> Any:
    """Takes a byte array, a place in it and a number, which becomes the eight bytes there."""
    import numba as nb

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(context, builder, signature.args[0], *arguments[:2]), align=1)
        return context.get_dummy_value()

    return nb.void(data, at, number), generate


def _address(context: Any, builder: Any, kind: Any, data: Any, at: Any) -> Any:
    from llvmlite import ir

    start = context.make_array(kind)(context, builder, data).data
    return builder.bitcast(builder.gep(start, [at]), ir.IntType(64).as_pointer())

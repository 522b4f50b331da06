"""Compiled functions as files: machine code that Numba made once, and that runs later without Numba.

Loading Numba takes a quarter of a second and 60 MB, which is more than many commands need for their work. A function of plain
arithmetic refers to nothing of Numba's once it is compiled; its code is kept as an object file and opened by llvmlite, the library
below Numba. It is called as Numba calls compiled functions among each other (numba.core.callconv):

    int32 function(result*, exception**, arguments...)

where a scalar is itself and an array is two pointers (its owner and its Python object, null here), its number of items, the bytes
of one, its data, and a length and a step for each dimension. That is no promise of Numba's, so code is only kept if the function
as it was compiled takes just these arguments and refers to nothing but itself.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SCALARS: dict[str, tuple[str, str, Any]] = {
    # type: in an array's interface, in LLVM, in C
    "int8": ("|i1", "i8", ctypes.c_int8),
    "int16": ("<i2", "i16", ctypes.c_int16),
    "int32": ("<i4", "i32", ctypes.c_int32),
    "int64": ("<i8", "i64", ctypes.c_int64),
    "uint8": ("|u1", "i8", ctypes.c_uint8),
    "uint32": ("<u4", "i32", ctypes.c_uint32),
    "uint64": ("<u8", "i64", ctypes.c_uint64),
    "float64": ("<f8", "double", ctypes.c_double),
    "boolean": ("|b1", "i8", ctypes.c_bool),
}
_ARRAY = re.compile(r"(?:Array\((\w+), (\d), 'C', readonly=True\)|(\w+)\[(:|::1|:, :|:, ::1)\])")
_PLACES = {":": (1, False), "::1": (1, True), ":, :": (2, False), ":, ::1": (2, True)}
_FINISHED = (0, -2)  # callconv.RETCODE_OK and RETCODE_NONE
_ENVIRONMENT = re.compile(r"^(@_ZN08NumbaEnv\w*) = .*$", re.MULTILINE)
_LAST_REFERENCE = "NRT_MemInfo_call_dtor"


@dataclass(frozen=True)
class _Scalar:
    kind: str

    @property
    def llvm(self) -> list[str]:
        return [_SCALARS[self.kind][1]]

    @property
    def c(self) -> list[Any]:
        return [_SCALARS[self.kind][2]]

    def give(self, value: Any, to: list[Any]) -> None:
        if self.kind == "float64":
            to.append(float(value))
        elif self.kind == "boolean":
            to.append(bool(value))
        else:
            number, bits = index(value), 8 * ctypes.sizeof(_SCALARS[self.kind][2])
            low = 0 if self.kind.startswith("u") else -(1 << (bits - 1))
            if not low <= number < low + (1 << bits):
                raise OverflowError(f"expected a number that fits {self.kind}, got {number}")
            to.append(number)


@dataclass(frozen=True)
class _Array:
    item: str
    dimensions: int
    contiguous: bool
    read_only: bool

    @property
    def llvm(self) -> list[str]:
        return ["ptr", "ptr", "i64", "i64", "ptr", *["i64"] * (2 * self.dimensions)]

    @property
    def c(self) -> list[Any]:
        return [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 2, ctypes.c_void_p, *[ctypes.c_int64] * (2 * self.dimensions)]

    def give(self, value: Any, to: list[Any]) -> None:
        try:
            about = value.__array_interface__
        except AttributeError:
            raise TypeError(f"expected an array of {self.item}, got {type(value).__name__}") from None
        shape, steps, (data, fixed) = about["shape"], about["strides"], about["data"]
        size = int(about["typestr"][2:])
        if (
            about["typestr"] != _SCALARS[self.item][0]
            or len(shape) != self.dimensions
            or (fixed and not self.read_only)
            or data % size
        ):
            found = f"{about['typestr']} of {len(shape)} dimensions" + (", not to be written" if fixed else "")
            raise TypeError(f"expected an array of {self.item} of {self.dimensions} dimensions, got {found}")
        if steps is None:
            steps = (size,) if self.dimensions == 1 else (size * shape[1], size)
        elif self.contiguous:
            raise TypeError(f"expected an array of {self.item} whose items lie one after the other")
        count = shape[0] if self.dimensions == 1 else shape[0] * shape[1]
        to.extend((None, None, count, size, data, *shape, *steps))


@dataclass(frozen=True)
class Signature:
    """What a function takes and returns.

    Attributes:
        arguments: The arguments.
        result: A scalar's type, `void`, or the type of one of `items`.
        items: How many a returned tuple has; 0 where a scalar is returned.
    """

    arguments: tuple[_Scalar | _Array, ...]
    result: str
    items: int


def parse_signature(text: str) -> Signature:
    """A signature as Numba writes it: `int64(uint8[::1], int64[:, ::1], boolean)`; tuples as `UniTuple(int64, 2)(...)`.

    Raises:
        ValueError: It has another form or other types.
    """
    found = re.fullmatch(r"(?:UniTuple\((\w+), (\d)\)|(\w+))\((.*)\)", text, re.DOTALL)
    if found is None or not ((found[3] or found[1]) in _SCALARS or found[3] == "void"):
        raise ValueError(f"not a signature: {text}")
    arguments: list[_Scalar | _Array] = []
    rest = " ".join(found[4].split())
    while rest:
        array = _ARRAY.match(rest)
        word = array[0] if array else rest.partition(",")[0]
        item = (array[1] or array[3]) if array else word
        if item not in _SCALARS:
            raise ValueError(f"not a type: {word}")
        if array is None:
            arguments.append(_Scalar(item))
        elif array[1]:
            arguments.append(_Array(item, int(array[2]), True, True))
        else:
            arguments.append(_Array(item, *_PLACES[array[4]], False))
        rest = rest[len(word) :].removeprefix(",").strip()
    return Signature(tuple(arguments), found[3] or found[1], int(found[2] or 0))


def object_code(signature: Signature, llvm_text: str, name: str, symbol: str) -> bytes | None:
    """The object file of a compiled function, or None where it cannot stand alone.

    Args:
        signature: What it takes.
        llvm_text: The module that it was compiled to, optimised.
        name: What it is called there.
        symbol: What it is called in the object file; no two that are loaded by one process are called the same.
    """
    import llvmlite.binding as llvm

    # Each function has a place for what Python code in it would need
    rest = _ENVIRONMENT.sub("", llvm_text)
    if any(place in rest for place in _ENVIRONMENT.findall(llvm_text)):
        return None
    module = llvm.parse_assembly(rest)
    function = module.get_function(name)
    expected = ["ptr", "ptr", *(part for argument in signature.arguments for part in argument.llvm)]
    if ["ptr" if str(a.type).endswith("*") else str(a.type) for a in function.arguments] != expected:
        return None
    needed = {other.name for other in [*module.functions, *module.global_variables] if other.is_declaration}
    if any(not other.startswith("llvm.") and other != _LAST_REFERENCE for other in needed):
        return None
    if _LAST_REFERENCE in needed:  # is never called: what is given has no owner whose references are counted
        module.link_in(llvm.parse_assembly(f"define void @{_LAST_REFERENCE}(ptr %0) {{\n  ret void\n}}\n"))
        function = module.get_function(name)
        for other in module.functions:
            if not other.is_declaration and other.name != name:
                other.linkage = "internal"
    function.name = symbol
    module.verify()
    return bytes(_machine().emit_object(module))


def load(signature: Signature, code: bytes, symbol: str) -> Callable[..., Any]:
    """The function of an object file of `object_code`, to be called with NumPy arrays and numbers; it lets go of the GIL.

    Args:
        signature: What it takes.
        code: The object file.
        symbol: What it is called there.

    Returns:
        The function. It raises `Unfinished` where the compiled one raises an exception, `TypeError` for arguments of other types,
        and `OverflowError` for numbers that do not fit theirs.

    Raises:
        RuntimeError: The object file cannot be opened here.
    """
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(f"the object file has no {symbol}")
    kinds = [part for argument in signature.arguments for part in argument.c]
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *kinds)(address)
    gives = [argument.give for argument in signature.arguments]
    # a function that returns nothing writes a null pointer
    nothing, items, byref, pointer = signature.result == "void", signature.items, ctypes.byref, ctypes.c_void_p
    result = (pointer if nothing else _SCALARS[signature.result][2]) * max(1, items)

    def call(*arguments: Any) -> Any:
        if len(arguments) != len(gives):
            raise TypeError(f"expected {len(gives)} arguments, got {len(arguments)}")
        flat: list[Any] = []
        for give, argument in zip(gives, arguments, strict=True):
            give(argument, flat)
        values = result()
        if entry(byref(values), byref(pointer()), *flat) not in _FINISHED:
            raise Unfinished
        return None if nothing else tuple(values) if items else values[0]

    return call


class Unfinished(Exception):  # noqa: N818  not an error yet: the caller finds out which
    """The compiled function raised an exception, which its other form can tell."""


@lru_cache
def host() -> str:
    """What code made here needs of a processor: its name and features."""
    import llvmlite.binding as llvm

    return f"{llvm.get_default_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@lru_cache
def _machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True, codemodel="jitdefault"
    )


@lru_cache
def _engine() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())

"""Compiled functions as files: machine code that Numba made once, and that runs later without Numba.

Loading Numba takes a quarter of a second and 60 MB, which is more than many commands need for their work. A function of plain
arithmetic refers to nothing of Numba's once it is compiled; its code is kept as an image that needs no library to be opened
(`alltrace.trace.code_image`), or, on other processors than x86-64, as an object file, which llvmlite opens, the library below
Numba. Numba's compiled functions call each other like this (numba.core.callconv):

    int32 function(result*, exception**, arguments...)

where a scalar is itself and an array is two pointers (its owner and its Python object, null here), its number of items, the bytes
of one, its data, and a length and a step for each dimension. That is no promise of Numba's, so code is only kept if the function
as it was compiled takes just these arguments and refers to nothing but itself.

To hand over a hundred arguments from Python takes longer than many calls do, so what is kept has an entry that takes two: where
the arguments lie, 8 bytes each, and where the result goes. It reads what an array is from NumPy's object (`PyArrayObject_fields`
in numpy/ndarraytypes.h), which has been laid out the same since NumPy 1; that it is so here is looked at before the first call.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from functools import lru_cache
from importlib import import_module
from operator import index
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alltrace.trace import code_image

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SCALARS: dict[str, tuple[str, str, Any]] = {
    # type: as `struct` packs it, in LLVM, in C
    "int8": ("q", "i8", ctypes.c_int8),
    "int16": ("q", "i16", ctypes.c_int16),
    "int32": ("q", "i32", ctypes.c_int32),
    "int64": ("q", "i64", ctypes.c_int64),
    "uint8": ("q", "i8", ctypes.c_uint8),
    "uint32": ("q", "i32", ctypes.c_uint32),
    "uint64": ("Q", "i64", ctypes.c_uint64),
    "float64": ("d", "double", ctypes.c_double),
    "boolean": ("q", "i8", ctypes.c_bool),
}
_ARRAY = re.compile(r"(?:Array\((\w+), (\d), 'C', readonly=True\)|(\w+)\[(:|::1|:, :|:, ::1)\])")
_PLACES = {":": (1, False), "::1": (1, True), ":, :": (2, False), ":, ::1": (2, True)}
_FINISHED = (0, -2)  # callconv.RETCODE_OK and RETCODE_NONE
_ENVIRONMENT = re.compile(r"^(@_ZN08NumbaEnv\w*) = .*$", re.MULTILINE)
_LAST_REFERENCE = "NRT_MemInfo_call_dtor"
_LOADING = Lock()


# Of a PyArrayObject after its head: where the data begins, how many dimensions, their lengths, their steps, and flags
_DATA, _DIMENSIONS, _LENGTHS, _STEPS, _FLAGS = 0, 8, 16, 24, 48
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_NOT_THIS_ARRAY = 1 << 20  # and the number of the argument: what an entry returns, far from what Numba does


class _Scalar(NamedTuple):
    kind: str

    @property
    def llvm(self) -> list[str]:
        return [_SCALARS[self.kind][1]]

    def entry(self, number: int, head: int) -> tuple[list[str], list[str]]:  # noqa: ARG002  as that of an array
        """The lines that read it, and the names of what they read."""
        kind = self.llvm[0]
        lines = [f"%p{number} = getelementptr i8, ptr %arguments, i64 {8 * number}"]
        if kind in {"i64", "double"}:
            return [*lines, f"%s{number} = load {kind}, ptr %p{number}"], [f"%s{number}"]
        return [*lines, f"%w{number} = load i64, ptr %p{number}", f"%s{number} = trunc i64 %w{number} to {kind}"], [f"%s{number}"]

    def check(self, value: Any) -> None:
        """Say what is wrong with a value."""
        if self.kind == "float64":
            float(value)
            return
        if self.kind == "boolean":
            return
        number, bits = index(value), 8 * ctypes.sizeof(_SCALARS[self.kind][2])
        low = 0 if self.kind.startswith("u") else -(1 << (bits - 1))
        if not low <= number < low + (1 << bits):
            raise OverflowError(f"expected a number that fits {self.kind}, got {number}")


class _Array(NamedTuple):
    item: str
    dimensions: int
    contiguous: bool
    read_only: bool

    @property
    def llvm(self) -> list[str]:
        return ["ptr", "ptr", "i64", "i64", "ptr", *["i64"] * (2 * self.dimensions)]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("bool" if self.item == "boolean" else self.item)

    def entry(self, number: int, head: int) -> tuple[list[str], list[str]]:
        """The lines that look at the array and read what it is, and the names of what they read."""
        n, need = number, _ALIGNED | (_CONTIGUOUS if self.contiguous else 0) | (0 if self.read_only else _WRITEABLE)
        lines = [
            f"%p{n} = getelementptr i8, ptr %arguments, i64 {8 * n}",
            f"%o{n} = load ptr, ptr %p{n}",
            *_read(f"nd{n}", "i32", f"%o{n}", head + _DIMENSIONS),
            *_read(f"flags{n}", "i32", f"%o{n}", head + _FLAGS),
            f"%right{n} = icmp eq i32 %nd{n}, {self.dimensions}",
            f"%needed{n} = and i32 %flags{n}, {need}",
            f"%fit{n} = icmp eq i32 %needed{n}, {need}",
            f"%good{n} = and i1 %right{n}, %fit{n}",
            f"br i1 %good{n}, label %go{n}, label %bad{n}",
            f"bad{n}:",
            f"ret i32 {_NOT_THIS_ARRAY + n}",
            f"go{n}:",
            *_read(f"data{n}", "ptr", f"%o{n}", head + _DATA),
            *_read(f"lengths{n}", "ptr", f"%o{n}", head + _LENGTHS),
            *_read(f"steps{n}", "ptr", f"%o{n}", head + _STEPS),
        ]
        names = {what: [f"%{what}{n}_{d}" for d in range(self.dimensions)] for what in ("lengths", "steps")}
        for what, found in names.items():
            for d, name in enumerate(found):
                lines += _read(name[1:], "i64", f"%{what}{n}", 8 * d)
        count = names["lengths"][0]
        if self.dimensions == 2:
            count = f"%count{n}"
            lines.append(f"{count} = mul i64 {', '.join(names['lengths'])}")
        return lines, ["null", "null", count, str(self.dtype.itemsize), f"%data{n}", *names["lengths"], *names["steps"]]

    def check(self, value: Any) -> None:
        """Say what is wrong with a value."""
        wanted = f"expected an array of {self.item}"
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{wanted}, got {type(value).__name__}")
        if value.dtype != self.dtype or value.ndim != self.dimensions:
            raise TypeError(f"{wanted} of {self.dimensions} dimensions, got {value.dtype} of {value.ndim} dimensions")
        if not (self.read_only or value.flags.writeable):
            raise TypeError(f"{wanted} that can be written, got one that cannot")
        if not value.flags.aligned or (self.contiguous and not value.flags.c_contiguous):
            raise TypeError(f"{wanted} whose items lie aligned, one after the other")


def _read(name: str, kind: str, base: str, offset: int) -> list[str]:
    return [f"%{name}.at = getelementptr i8, ptr {base}, i64 {offset}", f"%{name} = load {kind}, ptr %{name}.at"]


class Signature(NamedTuple):
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


def optimised(function: Any, signature: str, options: Mapping[str, bool]) -> tuple[str, str]:
    """A function as Numba compiles it to LLVM's language, optimised, and what it is called there.

    Numba's decorator would go on and make machine code of it, which nobody runs: a tenth of what it takes.

    Args:
        function: In Python, calling nothing but what Numba understands.
        signature: What to compile it for.
        options: As Numba's decorator takes them.
    """
    parts = ("compiler", "compiler_lock", "registry", "sigutils")
    compiler, lock, registry, sigutils = (import_module(f"numba.core.{part}") for part in parts)
    target = registry.cpu_target
    arguments, result = sigutils.normalize_signature(signature)
    flags = compiler.Flags()
    target.options.parse_as_flags(flags, {"nopython": True, **options})
    flags.no_compile = True
    with lock.global_compiler_lock:
        target.target_context.refresh()
        library = _unlinked().create_library(function.__name__)
        compiled = compiler.compile_extra(
            target.typing_context, target.target_context, function, arguments, result, flags, {}, library=library
        )
        library.finalize()
    return library.get_llvm_str(), compiled.fndesc.llvm_func_name


def object_code(signature: Signature, llvm_text: str, name: str, symbol: str) -> bytes | None:
    """The image or object file of a compiled function, or None where it cannot stand alone.

    Args:
        signature: What it takes.
        llvm_text: The module that it was compiled to, optimised.
        name: What it is called there.
        symbol: What its entry is called in the object file; no two that are loaded by one process are called the same.
    """
    import llvmlite.binding as llvm

    # Each function has a place for what Python code in it would need
    rest = _ENVIRONMENT.sub("", llvm_text)
    if any(place in rest for place in _ENVIRONMENT.findall(llvm_text)):
        return None
    module = llvm.parse_assembly(rest)
    expected = ["ptr", "ptr", *(part for argument in signature.arguments for part in argument.llvm)]
    if [str(argument.type) for argument in module.get_function(name).arguments] != expected:
        return None
    needed = {other.name for other in [*module.functions, *module.global_variables] if other.is_declaration}
    if any(not other.startswith("llvm.") and other != _LAST_REFERENCE for other in needed):
        return None
    if _LAST_REFERENCE in needed:  # is never called: what is given has no owner whose references are counted
        module.link_in(llvm.parse_assembly(f"define void @{_LAST_REFERENCE}(ptr %0) {{\n  ret void\n}}\n"))
    module.link_in(llvm.parse_assembly(_entry(signature, name, symbol)))
    for other in module.functions:
        if not other.is_declaration and other.name != symbol:
            other.linkage = "internal"
    module.verify()
    # what is emitted is changed by it
    anywhere = bytes(_machine(anywhere=True).emit_object(module.clone()))
    return code_image.image(anywhere, symbol) or bytes(_machine().emit_object(module))


def _entry(signature: Signature, name: str, symbol: str) -> str:
    """The function that takes arguments from where they lie and hands them to the compiled one, as LLVM's text."""
    lines, given, kinds = [], ["%result", "%exception"], ["ptr", "ptr"]
    for number, argument in enumerate(signature.arguments):
        more, names = argument.entry(number, object.__basicsize__)
        lines += more
        given += names
        kinds += argument.llvm
    call = ", ".join(f"{kind} {what}" for kind, what in zip(kinds, given, strict=True))
    return "\n".join(
        [
            f'declare i32 @"{name}"({", ".join(kinds)})',
            f'define i32 @"{symbol}"(ptr %arguments, ptr %result) {{',
            "entry:",
            "%exception = alloca ptr",
            *lines,
            f'%status = call i32 @"{name}"({call})',
            "ret i32 %status",
            "}",
            "",
        ]
    )


def load(signature: Signature, code: bytes, symbol: str) -> Callable[..., Any]:
    """The function of `object_code`, to be called with NumPy arrays and numbers; it lets go of the GIL.

    Args:
        signature: What it takes.
        code: The image or object file.
        symbol: What its entry is called there.

    Returns:
        The function. It raises `Unfinished` where the compiled one raises an exception, `TypeError` for arguments of other types,
        and `OverflowError` for numbers that do not fit theirs.

    Raises:
        RuntimeError: The object file cannot be opened here, or arrays are not laid out as they are known.
        OSError: The image cannot be opened here.
    """
    _look_at_arrays()
    with _LOADING:
        address = code_image.open_image(code) if code.startswith(code_image.MAGIC) else _open_object(code, symbol)
    return _caller(signature, ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)(address))


def _open_object(code: bytes, symbol: str) -> int:
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = int(engine.get_function_address(symbol))
    if not address:
        raise RuntimeError(f"the object file has no {symbol}")
    return address


def _caller(signature: Signature, entry: Callable[[bytes, Any], int]) -> Callable[..., Any]:
    arguments = signature.arguments
    dtypes = [argument.dtype if isinstance(argument, _Array) else None for argument in arguments]
    narrow = [n for n, a in enumerate(arguments) if isinstance(a, _Scalar) and a.kind not in {"int64", "uint64", "float64"}]
    kinds = "".join(_SCALARS[a.kind][0] if isinstance(a, _Scalar) else "q" for a in arguments)
    pack, byref, array, identity = Struct(kinds).pack, ctypes.byref, np.ndarray, id
    # a function that returns nothing writes a null pointer
    nothing, items = signature.result == "void", signature.items
    result = (ctypes.c_void_p if nothing else _SCALARS[signature.result][2]) * max(1, items)

    def call(*given: Any) -> Any:
        if len(given) != len(dtypes):
            raise TypeError(f"expected {len(dtypes)} arguments, got {len(given)}")
        values = list(given)
        for n, dtype in enumerate(dtypes):
            if dtype is not None:
                value = given[n]
                if type(value) is not array or value.dtype is not dtype:
                    arguments[n].check(value)
                values[n] = identity(value)
        for n in narrow:
            arguments[n].check(given[n])
            values[n] = int(given[n])
        try:
            packed = pack(*values)
        except struct_error:
            for argument, value in zip(arguments, given, strict=True):
                argument.check(value)
            raise
        values_out = result()
        status = entry(packed, byref(values_out))
        if status not in _FINISHED:
            if status >= _NOT_THIS_ARRAY:
                arguments[status - _NOT_THIS_ARRAY].check(given[status - _NOT_THIS_ARRAY])
            raise Unfinished
        return None if nothing else tuple(values_out) if items else values_out[0]

    return call


@lru_cache(1)
def _look_at_arrays() -> None:
    """Read an array as entries do, and see whether that is what it is."""
    head = object.__basicsize__
    for some in (np.zeros((3, 5), np.int16), np.zeros((4, 6), np.float64)[::2, 1:3]):
        some.flags.writeable = bool(some.flags.c_contiguous)
        at = id(some) + head
        found = [
            ctypes.c_void_p.from_address(at + _DATA).value,
            ctypes.c_int.from_address(at + _DIMENSIONS).value,
            *(ctypes.c_void_p.from_address(at + place).value for place in (_LENGTHS, _STEPS)),
            ctypes.c_int.from_address(at + _FLAGS).value & (_CONTIGUOUS | _ALIGNED | _WRITEABLE),
        ]
        flags = _ALIGNED | (_CONTIGUOUS | _WRITEABLE if some.flags.c_contiguous else 0)
        about = some.__array_interface__
        if [found[0], found[1], found[4]] != [about["data"][0], 2, flags] or not found[2] or not found[3]:
            raise RuntimeError("arrays are laid out in another way than is known")
        for place, known in ((found[2], some.shape), (found[3], some.strides)):
            if tuple((ctypes.c_int64 * 2).from_address(place)) != known:
                raise RuntimeError("arrays are laid out in another way than is known")


class Unfinished(Exception):  # noqa: N818  not an error yet: the caller finds out which
    """The compiled function raised an exception, which its other form can tell."""


_PROCESSOR = {"vendor_id", "cpu family", "model", "model name", "flags", "CPU implementer", "CPU variant", "CPU part", "Features"}
"""What Linux says of a processor that decides which code is made for it."""

_FEATURES = {"flags", "Features"}
_MOST_OF_ONE = 1 << 14  # bytes that tell of one processor


@lru_cache
def host() -> str:
    """What code made here needs of a processor: its name and features, as the system has them, or else as LLVM does."""
    found = _processor()
    if found is not None:
        return f"{sys.platform} {os.uname().machine} {found}"
    import llvmlite.binding as llvm

    return f"{llvm.get_default_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _processor(path: str = "/proc/cpuinfo") -> str | None:
    """The first processor, as Linux describes it; None where it does not say what that can do."""
    try:
        with Path(path).open("rb", buffering=0) as file:
            text = file.read(_MOST_OF_ONE).decode("latin-1")
    except OSError:
        return None
    facts = [line.partition(":") for line in text.partition("\n\n")[0].splitlines()]
    known = {name.strip(): value.strip() for name, _, value in facts if name.strip() in _PROCESSOR}
    return repr(sorted(known.items())) if _FEATURES & set(known) else None


@lru_cache
def _machine(*, anywhere: bool = False) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    place = {"reloc": "pic", "codemodel": "small"} if anywhere else {"jit": True, "codemodel": "jitdefault"}
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, **place
    )


@lru_cache
def _unlinked() -> Any:
    """What makes Numba's libraries that are never run, optimised for this processor as those are that run."""
    codegen: Any = import_module("numba.core.codegen")

    class Unlinked(codegen.AOTCPUCodegen):  # type: ignore[misc]
        def _customize_tm_features(self) -> str:
            return str(self._get_host_cpu_features())

    return Unlinked("alltrace", "host")


@lru_cache
def _engine() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())

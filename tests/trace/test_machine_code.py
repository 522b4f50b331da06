from __future__ import annotations

import threading

import numpy as np
import pytest
from llvmlite import binding as llvm

from alltrace.trace import jit, machine_code

pytestmark = pytest.mark.skipif(
    llvm.llvm_version_info < (16,), reason="with typed pointers code is left to Numba: Numba 0.62 is the first without"
)

FACTOR = 3
READ = "Array(int64, 1, 'C', readonly=True)"


@jit.plain_kernel("int64(int64, int64)")
def add(a, b):
    return a + b


@jit.plain_kernel(f"void({READ}, int64[::1])")
def scaled(values, out):
    for i in range(len(values)):
        out[i] = add(values[i], 0) * FACTOR


@jit.plain_kernel("UniTuple(int64, 3)(int64[:, :], boolean[:], float64, boolean, uint8)")
def picked(table, chosen, share, negative, step):
    total = 0
    for i in range(table.shape[0]):
        for k in range(0, table.shape[1], step):
            if chosen[i]:
                total += table[i, k]
    return total, np.int64(total * share), -total if negative else table.shape[1]


@jit.plain_kernel("float64(float64[::1], int64)")
def mean(values, count):
    total = 0.0
    for i in range(count):
        total += values[i]
    return total / count


@jit.plain_kernel("int64(int64)")
def divided(number):
    return 100 // number


@jit.plain_kernel("int64(int64)")
def of_new_memory(count):
    return len(np.empty(count, np.int64))


def twice(number):
    return 2 * number


@jit.inlined
def once_more(number):
    return number + 1


@jit.plain_kernel("int64(int64)")
def with_helpers(number):
    return once_more(twice(number))


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder of its own for what is compiled, and kernels that are not loaded yet."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    for one in (add, scaled, picked, mean, divided, of_new_memory, with_helpers):
        monkeypatch.setattr(one, "_run", None)
    return tmp_path / "kept"


@pytest.fixture
def uncompiled(monkeypatch):
    """Nothing is compiled from here on."""

    def fail(*_):
        raise AssertionError("this is not to be compiled")

    return lambda: monkeypatch.setattr(jit.PlainKernel, "_compile", fail)


def files(folder):
    return sorted(path.name for path in folder.glob("*.kernel"))


def test_a_kernel_is_kept_and_loaded_without_a_compiler(kept, uncompiled, monkeypatch):
    values, out = np.arange(4), np.zeros(4, np.int64)
    values.flags.writeable = False
    scaled(values, out)
    assert out.tolist() == [0, 3, 6, 9]
    assert [name.split(".")[0] for name in files(kept)] == ["tests_trace_test_machine_code_scaled"]
    uncompiled()
    monkeypatch.setattr(scaled, "_run", None)
    scaled(values, out[::-1].copy())
    scaled(values + 1, out)
    assert out.tolist() == [3, 6, 9, 12]
    assert not {"made", "whole"} & set(vars(scaled))  # Numba's own form was never asked for


def test_no_machine_code_is_made_that_nobody_runs(kept, monkeypatch):
    from numba.core.codegen import JITCodeLibrary

    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific", lambda _: pytest.fail("Numba made machine code"))
    assert add(2, 3) == 5
    assert len(files(kept)) == 1


def test_values_of_all_kinds_go_in_and_out(kept):
    table = np.arange(24).reshape(4, 6)
    chosen = np.array([True, False, True, True])
    chosen_rows = table[chosen]
    assert picked(table, chosen, 0.5, True, 1) == (chosen_rows.sum(), chosen_rows.sum() // 2, -chosen_rows.sum())
    some = table[chosen][:, ::4].sum()
    assert picked(table[:, ::2], chosen, 0.5, False, np.uint8(2)) == (some, some // 2, 3)
    assert mean(np.array([1.0, 2.0, 6.0]), 3) == 3.0
    assert add(np.int64(2**62), -1) == 2**62 - 1
    assert add(-(2**63), 0) == -(2**63)


def test_an_exception_is_the_one_that_python_raises(kept):
    assert divided(7) == 14
    with pytest.raises(ZeroDivisionError):
        divided(0)


def test_what_needs_the_compiler_to_run_is_left_to_it(kept):
    assert of_new_memory(5) == 5
    assert files(kept) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((np.arange(3.0), np.zeros(3, np.int64)), "expected an array of int64 of 1 dimensions, got float64 of 1 dimensions"),
        ((np.zeros((1, 3), np.int64), np.zeros(3, np.int64)), "got int64 of 2 dimensions"),
        ((np.arange(3), np.zeros(6, np.int64)[::2]), "lie aligned, one after the other"),
        ((np.arange(3), [0, 0, 0]), "got list"),
        ((np.arange(3),), "expected 2 arguments, got 1"),
        ((np.arange(3), np.frombuffer(bytes(24), np.int64)), "that can be written, got one that cannot"),
        ((np.arange(3), np.frombuffer(bytearray(25), np.uint8)[1:].view(np.int64)), "lie aligned"),
    ],
)
def test_arguments_of_other_types_are_refused(kept, arguments, problem):
    with pytest.raises(TypeError, match=problem):
        scaled(*arguments)


def test_numbers_of_other_types_are_refused(kept):
    with pytest.raises(TypeError):
        add(1.5, 1)
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError, match=f"fits int64, got {number}"):
            add(number, 1)
    with pytest.raises(OverflowError):
        picked(np.zeros((1, 1), np.int64), np.ones(1, np.bool_), 1.0, False, 256)


def test_code_is_made_anew_when_what_it_refers_to_changes(kept, monkeypatch):
    out = np.zeros(1, np.int64)
    scaled(np.ones(1, np.int64), out)
    first = {name: (kept / name).read_bytes() for name in files(kept)}
    monkeypatch.setattr(scaled, "_run", None)
    monkeypatch.setitem(globals(), "FACTOR", 5)
    scaled(np.ones(1, np.int64), out)
    assert out[0] == 5
    assert files(kept) == sorted(first)
    assert all((kept / name).read_bytes() != content for name, content in first.items())


def test_code_is_made_anew_when_a_helper_elsewhere_changes(kept, monkeypatch):
    assert with_helpers(4) == 9
    before = {name: (kept / name).read_bytes()[:16] for name in files(kept)}
    source = jit.Path.read_bytes
    monkeypatch.setattr(jit.Path, "read_bytes", lambda path: source(path) + (b"# changed" if path.suffix == ".py" else b""))
    monkeypatch.setattr(with_helpers, "_run", None)
    assert with_helpers(4) == 9
    assert {name: source(kept / name)[:16] for name in files(kept)} != before


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b[:200] + bytes(40) + b[240:], lambda _: b"", lambda b: b + b"x"])
def test_a_damaged_file_is_replaced(kept, monkeypatch, damage):
    assert add(1, 2) == 3
    (name,) = files(kept)
    whole = (kept / name).read_bytes()
    (kept / name).write_bytes(damage(whole))
    monkeypatch.setattr(add, "_run", None)
    assert add(1, 2) == 3
    assert (kept / name).read_bytes()[:16] == whole[:16]
    assert len((kept / name).read_bytes()) == len(whole)


def test_without_the_library_below_the_compiler_it_still_runs(kept, monkeypatch):
    monkeypatch.setattr(machine_code, "load", lambda *_: (_ for _ in ()).throw(RuntimeError("another release")))
    assert add(20, 3) == 23


def test_several_threads_load_it_once(kept):
    found = []
    threads = [threading.Thread(target=lambda n=n: found.append(with_helpers(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [1, 3, 5, 7, 9, 11, 13, 15]
    assert len(files(kept)) == 1


class Mine(np.ndarray):
    pass


def test_arrays_of_equal_types_and_of_subclasses_are_taken(kept):
    out = np.zeros(3, np.dtype("longlong")).view(Mine)
    scaled(np.arange(3, dtype=np.dtype("longlong")), out)
    assert out.tolist() == [0, 3, 6]
    with pytest.raises(TypeError, match="got >i8 of 1 dimensions"):
        scaled(np.arange(3, dtype=">i8"), out)


def test_empty_and_odd_arrays_are_taken(kept):
    scaled(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert picked(np.zeros((0, 4), np.int64), np.zeros(0, np.bool_), 1.0, False, 1) == (0, 0, 4)
    table = np.arange(24).reshape(4, 6)
    chosen = np.ones(8, np.bool_)[::2]
    assert picked(table.T[::-1, 1:3], np.ones(6, np.bool_), 1.0, False, 1)[0] == table[1:3].sum()
    assert picked(table[::-1], chosen, 1.0, False, 1)[0] == table.sum()


def test_arrays_that_are_laid_out_differently_are_left_to_the_compiler(kept, monkeypatch):
    monkeypatch.setattr(machine_code, "_STEPS", machine_code._LENGTHS)
    machine_code._look_at_arrays.cache_clear()
    with pytest.raises(RuntimeError, match="laid out in another way"):
        machine_code._look_at_arrays()
    assert add(3, 4) == 7
    monkeypatch.undo()
    machine_code._look_at_arrays.cache_clear()
    machine_code._look_at_arrays()


@pytest.mark.parametrize("text", ["int64", "int65(int64)", "int64(int64[::2])", "int64(object)", "int64(Array(int64, 1, 'F'))"])
def test_a_signature_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="not a"):
        machine_code.parse_signature(text)


def test_a_signature_says_what_is_taken():
    found = machine_code.parse_signature(f"UniTuple(int64, 2)(uint8[::1], int64[:, ::1],\n {READ}, boolean)")
    assert (found.result, found.items) == ("int64", 2)
    assert [len(argument.llvm) for argument in found.arguments] == [7, 9, 7, 1]


def test_code_that_takes_other_arguments_than_it_says_is_not_kept(kept):
    import numba

    dispatcher = numba.njit("int64(int64, int64)", nogil=True)(add.function)
    (text,) = dispatcher.inspect_llvm().values()
    (compiled,) = dispatcher.overloads.values()
    name = compiled.fndesc.llvm_func_name
    other = machine_code.parse_signature("int64(int64, float64)")
    assert machine_code.object_code(other, text, name, "other") is None
    # with what Python would call it by, it refers to Python
    assert machine_code.object_code(machine_code.parse_signature("int64(int64, int64)"), text, name, "other") is None


CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: A Processor
cpu MHz\t\t: {mhz}
flags\t\t: {flags}

processor\t: 1
flags\t\t: other
"""


def test_a_processor_is_told_by_what_it_can_do(tmp_path):
    def found(mhz, flags):
        (tmp_path / "cpuinfo").write_text(CPUINFO.format(mhz=mhz, flags=flags))
        return machine_code._processor(str(tmp_path / "cpuinfo"))

    first = found("2100.1", "sse avx")
    assert first == "[('flags', 'sse avx'), ('model name', 'A Processor'), ('vendor_id', 'GenuineIntel')]"
    assert found("800.0", "sse avx") == first
    assert found("2100.1", "sse avx avx512f") != first
    (tmp_path / "cpuinfo").write_text("model name : A Processor\n")
    assert machine_code._processor(str(tmp_path / "cpuinfo")) is None
    assert machine_code._processor(str(tmp_path / "none")) is None


def test_without_word_from_the_system_the_processor_is_what_the_compiler_says(monkeypatch):
    monkeypatch.setattr(machine_code, "_processor", lambda: None)
    assert machine_code.host.__wrapped__().startswith(llvm.get_default_triple())


def test_code_for_another_processor_than_x86_64_is_an_object_file(kept, monkeypatch):
    monkeypatch.setattr(machine_code.code_image, "image", lambda *_: None)
    assert with_helpers(3) == 7
    (name,) = files(kept)
    assert (kept / name).read_bytes()[32:36] == b"\x7fELF"
    monkeypatch.setattr(with_helpers, "_run", None)
    monkeypatch.setattr(jit.PlainKernel, "_compile", lambda *_: pytest.fail("compiled again"))
    assert with_helpers(4) == 9

"""The compiled decoder of pickles: the same values as `pickle`, and nothing of what is not plain or is damaged."""

from __future__ import annotations

import gc
import pickle
import random

from alltrace.core.pickles import plain_data


class Evil:
    def __reduce__(self):
        return print, ("never",)


def value(draws, depth=0):
    kinds = ["int", "float", "text", "none", "bool"] + (["list", "dict", "tuple"] if depth < 4 else [])
    match draws.choice(kinds):
        case "int":
            return draws.choice([0, 255, 256, -1, 65535, 1 << 31, -(1 << 40), (1 << 63) - 1, draws.randrange(1 << 62)])
        case "float":
            return draws.random() * 10 ** draws.randrange(-300, 300)
        case "text":
            return "".join(draws.choice("aé€\U0001f600\x00\n") for _ in range(draws.choice([0, 1, 3, 300])))
        case "none":
            return None
        case "bool":
            return draws.random() < 0.5
        case "list":
            return [value(draws, depth + 1) for _ in range(draws.randrange(5))]
        case "tuple":
            return tuple(value(draws, depth + 1) for _ in range(draws.randrange(5)))
        case _:
            return {
                draws.choice(["k", 7, None, 2.5, f"x{n}"]): value(draws, depth + 1) for n in range(draws.randrange(5))
            }


def test_plain_data_is_what_pickle_reads():
    draws = random.Random(3)
    for seed in range(400):
        data = value(draws)
        protocol = draws.choice([2, 3, 4, 5])
        pickled = pickle.dumps(data, protocol=protocol)
        assert plain_data(pickled + b"K\x01.") == (data, len(pickled)), f"case {seed}"


def test_shared_values_are_shared():
    shared = ["x"]
    root = plain_data(pickle.dumps({"a": shared, "b": shared}, protocol=2))[0]
    assert root["a"] is root["b"]


def test_numbers_of_shared_values_in_any_order():
    def text(letter):
        return b"\x8c\x01" + letter

    puts = [
        text(letter) + b"q" + bytes([number])
        for letter, number in zip((b"a", b"b", b"c", b"d"), (2, 0, 1, 2), strict=True)
    ]
    pickled = b"\x80\x04(" + b"".join(puts) + text(b"e") + b"\x94h\x02h\x00h\x01h\x03t."
    assert plain_data(pickled) == (pickle.loads(pickled), len(pickled))
    assert plain_data(b"\x80\x02K\x05q\x07h\x06.") is None


def test_deep_values_are_left_to_the_general_decoder():
    deep = b"\x80\x02" + b"(" * 1001 + b"t" * 1001 + b"."
    assert plain_data(deep) is None
    assert plain_data(deep[:2] + b"(" * 1000 + b"t" * 1000 + b".") is not None


def test_the_collector_is_left_as_it_was():
    whole = pickle.dumps([[1]], protocol=2)
    try:
        for enabled in (True, False):
            (gc.enable if enabled else gc.disable)()
            for data in (whole, whole[:-1]):
                plain_data(data)
                assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_anything_else_is_none():
    whole = pickle.dumps({"entries": [{"a": 1, "b": (2.5, "text")}] * 3}, protocol=2)
    assert plain_data(whole) is not None
    for end in range(len(whole)):
        assert plain_data(whole[:end]) is None, end
    for data in (Evil(), {("a", 1): 2}, {1 << 80}, 1 << 80, b"bytes", {1, 2}):
        assert plain_data(pickle.dumps(data, protocol=2)) is None, data
    assert plain_data(pickle.dumps({"a": 1}, protocol=0)) is None
    assert plain_data(b"") is None
    draws = random.Random(5)
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(draws.randrange(1, 4)):
            damaged[draws.randrange(len(damaged))] = draws.randrange(256)
        plain_data(bytes(damaged))  # a value or None, never an error

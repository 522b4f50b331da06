import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from alltrace.export.record_bytes import INT, MICROSECONDS, TEXT, VARINT, Pool, Template

I64 = np.iinfo(np.int64)


def made(fields, *columns, pool=None):
    columns = [np.array(c, np.int64) for c in columns]
    records = Template(pool or Pool(), fields).records(len(columns[0]), *columns)
    data, out = records.data.tobytes(), []
    for length in records.lengths:
        out.append(data[:length])
        data = data[length:]
    assert not data
    return out


def test_numbers_and_texts_of_every_size():
    values = [0, 9, 10, -1, -10, 2**31, 10**18, I64.max, I64.min]
    assert made(["<", INT, ">"], values) == [f"<{v}>".encode() for v in values]
    assert made([MICROSECONDS], [0, 7, 999, 1000, 1_234_567, -1, -1500]) == [
        b"0.000", b"0.007", b"0.999", b"1.000", b"1234.567", b"-0.001", b"-1.500",
    ]  # fmt: skip
    pool = Pool()
    names = pool.add_all(["a", "naïve 核", "", "a"])
    assert names.tolist() == [0, 1, 2, 0]
    assert made([TEXT, "|", INT], [*names, -1], [1, 2, 3, 4, 5], pool=pool) == [
        b"a|1", "naïve 核|2".encode(), b"|3", b"a|4", b"|5",
    ]  # fmt: skip
    assert made([VARINT], [0, 1, 127, 128, 300, -1]) == [
        b"\0", b"\x01", b"\x7f", b"\x80\x01", b"\xac\x02", b"\xff" * 9 + b"\x01",
    ]  # fmt: skip
    assert made([INT, "x"], []) == []
    records = Template(Pool(), [INT, ":", INT, ";"]).records(3, np.arange(3), 5)
    assert records.data.tobytes() == b"0:5;1:5;2:5;"
    values = [s * (10**n + d) for n in range(19) for d in (-1, 0, 1) for s in (1, -1)]
    assert made([INT, ";"], values) == [f"{v};".encode() for v in values]


@given(
    st.lists(st.tuples(st.integers(I64.min, I64.max), st.integers(0, 3), st.integers(0, 10**15))),
    st.lists(st.binary(max_size=40)),
)
def test_records_equal_those_of_python(rows, pieces):
    pool = Pool()
    numbers = [pool.add(p) for p in [*pieces, b"", b"0123456", b"01234567", b"012345678"]]
    texts = [numbers[n % len(numbers)] for _, n, _ in rows]
    known = {pool.add(p): p for p in [*pieces, b"", b"0123456", b"01234567", b"012345678"]}
    expected = [
        b"%d|%s|%d.%03d\n" % (value, known[text], ns // 1000, ns % 1000)
        for (value, _, ns), text in zip(rows, texts, strict=True)
    ]
    columns = ([r[0] for r in rows], texts, [r[2] for r in rows])
    assert made([INT, "|", TEXT, "|", MICROSECONDS, "\n"], *columns, pool=pool) == expected

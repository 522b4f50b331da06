import gzip

import pytest

from alltrace.export.paraver.checker import check
from alltrace.readers.paraver.identity import parse_header
from alltrace.trace.errors import InputError

HEADER = "#Paraver (16/05/2025 at 19:33):1000_ns:2(2,1):1:2(2:1,1:2)"
PCF = "EVENT_TYPE\n0    7    Call\nVALUES\n0    End\n1    one\n\nEVENT_TYPE\n0    8    Size\n"
ROW = "LEVEL CPU SIZE 3\na\nb\nc\n\nLEVEL NODE SIZE 2\nx\ny\n\nLEVEL THREAD SIZE 3\nt\nu\nv\n"
GOOD = """# made by hand
1:1:1:1:1:0:10:1
2:2:1:1:2:0:7:1:8:-5
3:0:1:1:1:0:0:3:1:2:1:6:5:64:1
2:0:1:1:2:10:7:0
1:3:1:2:1:10:1000:0
"""


def checked(tmp_path, body=GOOD, header=HEADER, pcf=PCF, row=ROW, name="t.prv"):
    data = f"{header}\n{body}".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    for suffix, text in ((".pcf", pcf), (".row", row)):
        if text is not None:
            (tmp_path / f"t{suffix}").write_text(text)
    return check(tmp_path / name)


@pytest.mark.parametrize("name", ["t.prv", "t.prv.gz"])
def test_a_good_trace_has_no_fault(tmp_path, name):
    report = checked(tmp_path, name=name)
    assert (report.faults, report.records) == ([], 5)


def test_a_trace_alone_has_no_fault(tmp_path):
    assert checked(tmp_path, pcf=None, row=None).faults == []


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5000, "9" * 20])
def test_numbers_beside_the_trace_that_are_none_or_too_long_are_not_read(tmp_path, number):
    pcf = f"{PCF}PRECISION {number}\n\nEVENT_TYPE\n0    {number}    odd\nVALUES\n0    End\n{number}    one\n"
    assert checked(tmp_path, pcf=pcf).faults == []
    report = checked(tmp_path, row=f"LEVEL CPU SIZE {number}\n{ROW}")
    assert report.faults == ["t.row: line 1 is not a level and does not belong to one"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1:0:1:1:1:0:1.5:1", "whole numbers"),
        ("1:0:1:1:1:0::1", "whole numbers"),
        ("hello", "whole numbers"),
        ("2:0:1:1:1:5:8:99999999999999999999", "whole numbers"),
        ("9:0:1:1:1:0:5:1", "not a state"),
        ("1:0:1:1:1:0:5", "too few or too many"),
        ("2:0:1:1:1:5:8", "too few or too many"),
        ("1:0:1:1:3:0:5:1", "thread that is not in the header"),
        ("1:0:1:3:1:0:5:1", "thread that is not in the header"),
        ("1:0:2:1:1:0:5:1", "thread that is not in the header"),
        ("1:0:1:1:0:0:5:1", "thread that is not in the header"),
        ("1:3:1:1:1:0:5:1", "on a CPU of another node"),
        ("1:4:1:1:1:0:5:1", "on a CPU of another node"),
        ("1:0:1:1:1:20:15:1", "ends before it begins"),
        ("1:0:1:1:1:20:1001:1", "ends after the trace"),
        ("2:0:1:1:1:-5:8:1", "before time 0"),
        ("2:0:1:1:1:1001:8:1", "after the end"),
        ("3:0:1:1:1:20:10:0:1:2:1:30:30:0:0", "outside of its send"),
        ("3:0:1:1:1:20:20:0:1:2:1:30:40:0:0", "outside of its send"),
        ("3:0:1:1:1:20:20:0:1:2:9:30:30:0:0", "thread that is not in the header"),
        ("2:0:1:1:1:20:4294967296:1", "not a 32-bit number"),
        ("2:0:1:1:1:20:7:1", "thread 1.1.1, type 7: 1 begins too many"),
        ("2:0:1:1:1:20:7:0", "thread 1.1.1, type 7: 1 ends too many"),
        ("2:0:1:1:1:20:9:1", "type 9 has no label"),
        ("2:0:1:1:1:20:8:1\n2:0:1:1:1:19:8:1", "line 9: is not in time order"),
    ],
)
def test_each_rule_names_its_line(tmp_path, line, said):
    report = checked(tmp_path, GOOD + line)
    assert any(said in f for f in report.faults), report.faults
    assert len(report.faults) <= 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#Paraver", "Paraver"),
        ("2(2,1)", "3(2,1)"),
        ("2(2:1,1:2)", "3(2:1,1:2)"),
        (":1:2(2", ":2:2(2"),
        ("1:2)", "1:3)"),
        ("2:1,", "0:1,"),
        ("1000_ns", "x_ns"),
    ],
)
def test_a_bad_header_is_one_fault(tmp_path, old, new):
    assert len(checked(tmp_path, header=HEADER.replace(old, new)).faults) == 1


def test_headers_of_other_tools():
    header = parse_header("#Paraver (21/11/2026 at 01:53):130400_ns:0:1:2(4:1,4:1)")
    assert (header.end, header.cpus, header.tasks) == (130400, (), (((4, 1), (4, 1)),))
    assert parse_header("#Paraver (a):674177237_ns:2(4,4):1:4(2:1,2:1,1:2,1:2),5").sizes()["THREAD"] == 6


def test_labels_and_rows(tmp_path):
    report = checked(
        tmp_path,
        pcf=PCF.replace("1    one", "1    one\n2    one\n2147483648    far\n3"),
        row=ROW.replace("SIZE 3\nt", "SIZE 2\nt"),
    )
    assert report.faults == [
        "t.pcf: type 7 has an empty label",
        "t.pcf: type 7 labels a value above 2^31 - 1, which Paraver drops",
        "t.pcf: type 7 has one label for two values",
        "t.row: level THREAD has 2 labels, the header 3",
        "t.row: line 13 is not a level and does not belong to one",
    ]


def test_many_faults_are_counted_and_few_are_told(tmp_path):
    report = checked(tmp_path, GOOD + "x\n" * 1000)
    assert (report.count, report.faults) == (1000, ["line 8 (and 999 more): is not made of whole numbers"])


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        check(tmp_path / "no.prv")
    (tmp_path / "bad.prv.gz").write_bytes(b"\x1f\x8b\x08 no")
    with pytest.raises(InputError, match="cannot be read"):
        check(tmp_path / "bad.prv.gz")
    (tmp_path / "cut.prv.gz").write_bytes(gzip.compress(b"#Paraver" * 1000)[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        check(tmp_path / "cut.prv.gz")


def test_an_empty_file_is_one_fault(tmp_path):
    (tmp_path / "t.prv").write_bytes(b"")
    assert check(tmp_path / "t.prv").faults == ["line 1: the first line is not a Paraver header"]

import pytest

from alltrace.capture.check import find_reports, report_fault

WHOLE = b"NVIDIA Tegra Profiler Report 2023@4 ... [END]"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (WHOLE, None),
        (b"", "it is empty"),
        (WHOLE[:-1], f"it is cut off after {len(WHOLE) - 1} bytes"),
        (b"SQLite format 3", "it does not start like a report of Nsight Systems"),
        (b"NVIDIA Something Newer", None),
    ],
)
def test_whole_or_not(tmp_path, content, fault):
    (tmp_path / "a.nsys-rep").write_bytes(content)
    assert report_fault(tmp_path / "a.nsys-rep") == fault


def test_a_report_of_nsight_compute(tmp_path):
    (tmp_path / "a.ncu-rep").write_bytes(b"NVR\0...")
    (tmp_path / "b.ncu-rep").write_bytes(b"...")
    assert report_fault(tmp_path / "a.ncu-rep") is None
    assert report_fault(tmp_path / "b.ncu-rep") == "it does not start like a report of Nsight Compute"


def test_repeated_ranges_belong_to_their_rank_and_other_ranks_do_not(tmp_path):
    for name in ("j_rank1.nsys-rep", "j_rank1.2.nsys-rep", "j_rank10.nsys-rep", "j_rank1.x.nsys-rep"):
        (tmp_path / name).write_bytes(WHOLE)
    (tmp_path / "j_rank1.1.nsys-rep").write_bytes(b"")
    found = find_reports(tmp_path / "j_rank1.nsys-rep")
    assert [p.name for p in found.whole] == ["j_rank1.2.nsys-rep", "j_rank1.nsys-rep"]
    assert [(p.name, fault) for p, fault in found.faults] == [("j_rank1.1.nsys-rep", "it is empty")]
    assert find_reports(tmp_path / "none" / "x.nsys-rep").whole == ()
    assert report_fault(tmp_path / "gone.nsys-rep") == "it cannot be read (No such file or directory)"

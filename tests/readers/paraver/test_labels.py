"""The labels of a .pcf."""

from alltrace.readers.paraver.labels import read_pcf


def test_a_label_may_be_a_number_and_types_keep_their_decimals(tmp_path):
    path = tmp_path / "out.pcf"
    path.write_text(
        "EVENT_TYPE\n0 77 Kernel\nVALUES\n0 End\n1 34\n2 gemm nn\n\nEVENT_TYPE\n0 78 Clock\n0 79 Power\nPRECISION 2\n"
    )
    assert [(e.types, e.values, e.precision) for e in read_pcf(path)] == [
        ({77: "Kernel"}, {0: "End", 1: "34", 2: "gemm nn"}, 0),
        ({78: "Clock", 79: "Power"}, {}, 2),
    ]

from alltrace.export.perfetto_messages import field, varint


def test_fields():
    assert varint(300) == b"\xac\x02"
    assert field(1, b"ab") == b"\x0a\x02ab"
    assert field(60, 1) == b"\xe0\x03\x01"
    assert len(varint(-1)) == 10

from tests.together import together

from alltrace.trace.nccl_words import DATATYPES, standard_datatype


@together("name", [name for name, _size in DATATYPES])
def test_a_standard_name_stays(name):
    assert standard_datatype(name) == name


@together(
    ("text", "name"),
    [
        ("ncclFloat32", "float32"),
        ("f32", "float32"),
        ("float", "float32"),
        ("Half", "float16"),
        ("__nv_bfloat16", "bfloat16"),
        ("bf16", "bfloat16"),
        ("BFloat16", "bfloat16"),
        ("ncclInt8", "int8"),
        ("uint64_t", "uint64"),
        ("torch.float8_e4m3fn", "float8_e4m3"),
        ("fp8_e5m2", "float8_e5m2"),
        ("Float8_e5m2", "float8_e5m2"),
    ],
)
def test_every_writing_has_one_name(text, name):
    assert standard_datatype(text) == name


@together("text", ["RING", "LL128", "Sum", "", "nccl", "double double"])
def test_other_words_are_no_type(text):
    assert standard_datatype(text) is None

from tests.together import together

from alltrace.trace.launches import plain_name, short_name


@together(
    ("name", "short"),
    [
        ("void a::b::gemm<float, (int)3>(float *, int)", "gemm"),
        ("gemm", "gemm"),
        ("void (anonymous namespace)::fill(int *)", "fill"),
        ("cutlass_tensorop_f16", "cutlass_tensorop_f16"),
        ("void at::native::kernel<at::f(int)::{lambda(float)#1}>(int)", "kernel"),
        ("", ""),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short


def test_spaces_do_not_tell_names_apart():
    assert plain_name("void f<int>(int *)") == plain_name("void f<int>( int* )")

"""Names of kernels as two demanglers write them; the demangler of the GNU binutils is the oracle for all names of real
reports."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest
from tests.together import together

from alltrace.trace.kernel_spelling import kernel_spelling

PAIRS = [
    (
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<long>, "
            "std::array<char *, (unsigned long)1>>(int, T2, T3)"
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>, std::array<char*, 1ul> >"
            "(int, at::native::FillFunctor<long>, std::array<char*, 1ul>)"
        ),
    ),
    (
        (
            "void at::elementwise_kernel<(int)128, (int)2, void at::gpu_kernel_impl<at::<unnamed>::f(at::Iter &)::"
            "[lambda() (instance 1)]::operator ()() const::[lambda(float) (instance 7)]>(at::Iter &, const T1 &)::"
            "[lambda(int) (instance 1)]>(int, T3)"
        ),
        (
            "void at::elementwise_kernel<128, 2, at::gpu_kernel_impl<at::(anonymous namespace)::f(at::Iter&)::"
            "{lambda()#1}::operator()() const::{lambda(float)#7}>(at::Iter&, at::(anonymous namespace)::f(at::Iter&)::"
            "{lambda()#1}::operator()() const::{lambda(float)#7} const&)::{lambda(int)#1}>(int, float)"
        ),
    ),
    ("void k<(bool)1, (bool)0, (int)-3>(const float *, T1)", "void k<true, false, -3>(float const*, int)"),
    (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    ),
]
APART = [
    ("void k<(int)4>(T1)", "void k<8>(int)"),
    ("void k<float>(T1)", "void k<double>(double)"),
    ("void a::k<(bool)1>(T1)", "void a::k<false>(int)"),
    ("f()::[lambda(float) (instance 1)]", "f()::{lambda(float)#2}"),
    ("f()::[lambda(float) (instance 1)]", "f()::{lambda(int)#1}"),
    ("void k<void *>(T1)", "void k<char*>(char*)"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_spellings_of_a_kernel_are_one(one, other):
    assert kernel_spelling(one) == kernel_spelling(other)
    assert kernel_spelling(kernel_spelling(one)) == kernel_spelling(one)


@together(("one", "other"), APART)
def test_kernels_of_other_template_arguments_stay_apart(one, other):
    assert kernel_spelling(one) != kernel_spelling(other)


def test_names_of_real_reports_are_spelled_as_another_demangler_does(corpus):
    if shutil.which("c++filt") is None:
        pytest.skip("no c++filt of the GNU binutils")
    pairs: set[tuple[str, str]] = set()
    for path in sorted((corpus / "nsys").glob("*.sqlite")):
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            columns = {row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}
            if {"mangledName", "demangledName"} <= columns:
                pairs.update(
                    database.execute(
                        "SELECT DISTINCT m.value, d.value FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                        "JOIN StringIds m ON m.id = k.mangledName JOIN StringIds d ON d.id = k.demangledName "
                        "WHERE m.value LIKE '!_Z%' ESCAPE '!'"
                    )
                )
    mangled = sorted(pairs)
    said = subprocess.run(
        ["c++filt"], input="\n".join(m for m, _ in mangled), capture_output=True, text=True, check=True
    )
    other = said.stdout.splitlines()
    assert sum(name == theirs for (_, name), theirs in zip(mangled, other, strict=True)) < len(mangled) / 10
    differ = [
        name
        for (_, name), theirs in zip(mangled, other, strict=True)
        if kernel_spelling(name) != kernel_spelling(theirs)
    ]
    assert len(differ) <= len(mangled) / 100, differ
    assert len({kernel_spelling(name) for _, name in mangled}) >= 0.99 * len({name for _, name in mangled})

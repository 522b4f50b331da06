"""One spelling of a kernel's name, independent of the demangler: profilers spell the same kernel differently.

Nsight Systems writes `f<(int)4, ns::<unnamed>::g(T1 &)::[lambda(float) (instance 1)]>(int, T2)`, demanglers of the
Itanium ABI `f<4, ns::(anonymous namespace)::g(float const&)::{lambda(float)#1}>(int, float)`.
"""

from __future__ import annotations

import re

_REWRITTEN = tuple(
    (re.compile(pattern), rest)
    for pattern, rest in (
        (r"<unnamed>|\(anonymous namespace\)", "{anonymous}"),
        (r"operator ?\(\)", "operator{}"),
        (r"\[lambda\(([^()\[\]{}]*)\) \(instance (\d+)\)\]", r"{lambda<\1>#\2}"),
        (r"\{lambda\(([^()\[\]{}]*)\)#(\d+)\}", r"{lambda<\1>#\2}"),
        (r"\(bool\)0", "false"),
        (r"\(bool\)1", "true"),
        (r"\b(\d+)(?:ull|ul|ll|u|l)\b", r"\1"),
    )
)
_DROPPED = re.compile(r"\bconst\b|\bvoid\b(?!\s*\*)|\s+")


def kernel_spelling(name: str) -> str:
    """A kernel's name without what demanglers differ in: parameters, casts of template arguments, `const`, spaces."""
    # It distinguishes fewer kernels than the name: use it for names without a partner of the same spelling.
    for pattern, rest in _REWRITTEN:
        name = pattern.sub(rest, name)
    letters, depth = [], 0
    for letter in name:
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth = max(depth - 1, 0)
        elif not depth:
            letters.append(letter)
    return _DROPPED.sub("", "".join(letters))

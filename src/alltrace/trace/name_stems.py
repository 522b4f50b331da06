"""What the names of ranges are without the counters that programs and PyTorch write into them: their stems.

`aten::to, op_id = 998949` is one call of an operator, `step 12` one step of many: sums, charts and comparisons between
runs use stems. Arrow and DuckDB have the same regular expressions (RE2, with time linear in the length of the text).
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Cut(NamedTuple):
    r"""What is cut out of a name: a pattern, and what takes the place of what it finds, `\1` being its first group."""

    pattern: str
    rest: str


RECORDED = Cut(r"(?s)(?:, (?:seq|op_id) = -?\d+|, (?:sizes|input_op_ids) = \[.*\])+$", "")
"""What `torch.autograd.profiler.emit_nvtx` writes after the name of every range (torch/csrc/profiler/util.cpp,
`getNvtxStr`)."""

COUNTED = Cut(
    r"(?i)(?:((?:(?:^|[^a-z])iter|iteration|epoch)s?)[ _#:=\[-]{0,2}"
    r"|((?:step|batch|request|token|frame|sample|episode)s?)[ _#:=\[-]{1,2})"
    r"\d+(?: ?(?:/|of) ?\d+)?\]?($|[/|,;:)])",
    r"\1\2\3",
)
"""The number of an iteration: `step 12`, `iteration_12`, `Batch 12/100`, `ProfilerStep#12`, `epoch 3/step 12`."""

NUMBERED = Cut(r"(?i)(^|[ ._/#:=\[(-]|layer|block|stage|expert)\d+", r"\1#")
"""Any separate number, such as that of a layer: `layers.3.mlp`, `layer12`, `[2]`. Only on request."""

STEM = (RECORDED, COUNTED)


def stems(names: Any) -> Any:
    """The names of ranges without counters, of an Arrow array of strings; null if the name is."""
    import pyarrow.compute as pc

    for pattern, rest in STEM:
        names = pc.replace_substring_regex(names, pattern, rest)
    return names


def stem_sql(text: str, cuts: tuple[Cut, ...] = STEM) -> str:
    """The same as an expression of DuckDB over the expression `text`."""
    for pattern, rest in cuts:
        text = f"regexp_replace({text}, '{pattern}', '{rest}', 'g')"
    return text

"""The skill: what a program must know to ask alltrace and to read its answers."""

import re
from functools import cache
from importlib.resources import files

_CAUTION = re.compile(r"^- `([a-z-]+)`: (.+)$", re.MULTILINE)


def skill_text() -> str:
    return files(__name__).joinpath("SKILL.md").read_text(encoding="utf-8")


@cache
def cautions() -> dict[str, str]:
    return dict(_CAUTION.findall(skill_text().partition("## What not to conclude")[2]))

"""Draws what imports what into docs/architecture.md. `python tools/make_import_map.py [--check]`.

The comment `<!-- drawing of packages -->` is followed by the drawing, up to `<!-- end of drawing -->`.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "architecture.md"
_DRAWING = re.compile(r"(<!-- drawing of packages -->\n).*?(<!-- end of drawing -->\n)", re.DOTALL)
Graph = dict[str, set[str]]


def main() -> int:
    """Write the page; with `--check` only say whether it is up to date."""
    page = rendered()
    stale = page != PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"{PAGE.relative_to(ROOT)} is not up to date; run python tools/make_import_map.py")
        return int(stale)
    PAGE.write_text(page, encoding="utf-8")
    return 0


def rendered() -> str:
    """The page with the drawing as the imports are now."""
    drawn = drawing(package_graph(module_graph()))
    return _DRAWING.sub(lambda found: f"{found[1]}{drawn}{found[2]}", PAGE.read_text(encoding="utf-8"))


def module_graph(source: Path = SOURCE) -> Graph:
    """The modules below a folder, each with those that it imports anywhere, also for types only."""
    files = {_name(path.relative_to(source)): path for path in sorted(source.rglob("*.py"))}
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def package_graph(modules: Graph) -> Graph:
    """The parts of the top package, each with those that it imports; the top package itself is left out."""
    parts: Graph = {}
    for module, others in modules.items():
        if (own := _part(module)) is not None:
            parts.setdefault(own, set()).update(p for other in others if (p := _part(other)) not in (None, own))
    return parts


def drawing(parts: Graph) -> str:
    """The parts as a Mermaid flowchart; an arrow that follows from others is left out."""
    arrows = []
    for part, others in sorted(parts.items()):
        direct = [o for o in sorted(others) if not any(o in _below(parts, between) for between in others - {o})]
        arrows += [f"  {part} --> {' & '.join(direct)}"] if direct else []
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```", ""])


def _below(parts: Mapping[str, set[str]], part: str) -> set[str]:
    """All dependencies of a part."""
    return parts[part].union(*(_below(parts, other) for other in parts[part]))


def _part(module: str) -> str | None:
    names = module.split(".")
    return names[1] if len(names) > 1 else None


def _name(path: Path) -> str:
    names = path.with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if module in known:
                    yield module
                elif node.module in known:
                    yield node.module


if __name__ == "__main__":
    sys.exit(main())

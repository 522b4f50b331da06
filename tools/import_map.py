"""What imports what in the package, read from the sources: the drawing in docs/architecture.md, and modules that import each other."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOURCE = Path(__file__).resolve().parents[1] / "src"
Graph = dict[str, set[str]]


def module_graph(source: Path = SOURCE) -> Graph:
    """The modules below a folder, each with those that it imports anywhere, also for types only."""
    files = {_name(path.relative_to(source)): path for path in sorted(source.rglob("*.py"))}
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def mutual_imports(modules: Graph) -> list[tuple[str, str]]:
    """The pairs of modules that import each other."""
    return [(a, b) for a, others in sorted(modules.items()) for b in sorted(others) if a < b and a in modules[b]]


def package_graph(modules: Graph) -> Graph:
    """The parts of the top package, each with those that it imports; the top package itself is left out."""
    parts: Graph = {}
    for module, others in modules.items():
        if (own := _part(module)) is not None:
            parts.setdefault(own, set()).update(p for other in others if (p := _part(other)) not in (None, own))
    return parts


def drawing(parts: Graph) -> str:
    """The parts as a Mermaid flowchart; an arrow that follows from others is left out."""
    arrows = [
        f"  {part} --> {other}"
        for part, others in sorted(parts.items())
        for other in sorted(others)
        if not any(other in _below(parts, between) for between in others - {other})
    ]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```", ""])


def _below(parts: Mapping[str, set[str]], part: str) -> set[str]:
    """All that a part stands on."""
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

"""The drawing of packages is as the imports are."""

import pytest
from tools import make_import_map
from tools.make_import_map import drawing, module_graph, package_graph


@pytest.fixture
def tree(tmp_path):
    """A package of three parts, with imports within a function and for types only."""
    files = {
        "top/__init__.py": "",
        "top/core/__init__.py": "",
        "top/core/loops.py": "import numpy\n",
        "top/run/__init__.py": "",
        "top/run/store.py": "def f():\n    from top.run import views\n    import top.core.loops\n",
        "top/run/views.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from top.run.store import Run\n",
        "top/cli.py": "from top.core import loops\nfrom top.run.store import Run\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return module_graph(tmp_path)


def test_the_drawing_is_up_to_date():
    page = make_import_map.PAGE.read_text(encoding="utf-8")
    assert "```mermaid" in page
    assert make_import_map.rendered() == page, "run python tools/make_import_map.py"


def test_imports_within_functions_and_for_types_count(tree):
    assert tree["top.run.store"] == {"top.run.views", "top.core.loops"}


def test_an_arrow_that_follows_from_others_is_left_out(tree):
    parts = package_graph(tree)
    assert parts == {"core": set(), "run": {"core"}, "cli": {"core", "run"}}
    assert drawing(parts) == "```mermaid\nflowchart TD\n  cli --> run\n  run --> core\n```\n"

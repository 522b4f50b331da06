import ast
from pathlib import Path

import alltrace
from alltrace.synth import write_run
from tests.together import together


def test_reports_are_kept_in_the_folder_given_as_text_or_path(tmp_path):
    write_run("tiny", tmp_path / "reports", ideal=True)
    cache = tmp_path / "cache"
    ranks = [len(alltrace.open(tmp_path / "reports", cache_dir=given).ranks) for given in (str(cache), cache)]
    assert ranks == [2, 2]
    (run,) = [path.parent for path in cache.rglob("manifest.json")]
    assert len(alltrace.open(str(run)).ranks) == 2


@together(
    "module",
    [
        "api",
        "align/aligned",
        "readers/base",
        "recipes/base",
        "recipes/part",
        "recipes/sql_recipe",
        "run/rank",
        "run/store",
    ],
)
def test_public_functions_say_what_they_take_and_give(module):
    """`Any` stands alone only where a recipe may hand any object from `map` to `reduce`, and for the alignment, which
    is above."""
    tree = ast.parse((Path(alltrace.__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    bare = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
            given = [
                a.annotation
                for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.kwarg)
                if a
            ]
            bare |= (
                {node.name} if any(isinstance(a, ast.Name) and a.id == "Any" for a in [*given, node.returns]) else set()
            )
        elif isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Name) and node.annotation.id == "Any":
            bare.add(ast.unparse(node.target))
    assert bare <= {
        "recipes/part": {"__init__", "table"},
        "recipes/base": {"map"},
        "run/store": {"self.alignment"},
    }.get(module, set())

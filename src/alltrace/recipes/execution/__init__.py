"""How a recipe runs: which ranks have its tables, map over ranks, reduce, part of a run, and many recipes at once."""

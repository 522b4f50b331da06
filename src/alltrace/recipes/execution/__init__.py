"""How a recipe is asked of a run: which ranks can answer, map over ranks, reduce, part of a run, and many recipes at once."""

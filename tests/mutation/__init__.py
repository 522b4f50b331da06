"""Mutation tests: change one place of the source at a time and run the tests that should notice. `python -m
tests.mutation`.

A change that makes a test fail is *killed*; one that all its tests pass has *survived*: either nothing checks the
place, or the changed program does the same. Places are drawn from all of the package. `places.py` has the changes,
`contexts.py` which tests execute a line, `judging.py` runs them. Everything happens in temporary copies of the tree;
the checkout is only read.
"""

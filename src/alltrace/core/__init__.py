"""Compiled loops over arrays and bytes, built when the package is installed.

Every index is checked against its array (Cython's `boundscheck`), so no input makes a loop read or write outside of
what it was given. The modules import nothing of alltrace's. Each has its types for Python's checkers in a `.pyi` next
to it.
"""

"""The vocabulary that every other part shares: canonical tables, interned names, interval kernels, errors.

Nothing here reads a file, and nothing here imports another part of alltrace.
"""

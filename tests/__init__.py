"""Tests; a package, so that an installed one with this name does not hide it."""

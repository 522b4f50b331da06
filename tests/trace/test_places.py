from __future__ import annotations

import platformdirs
import pytest

from alltrace.run.cache import default_folder
from alltrace.trace.places import cache_folder


@pytest.mark.parametrize("base", [None, "", " ", "/a/b"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_the_cache_is_where_the_system_has_it(monkeypatch, base, system):
    monkeypatch.delenv("ALLTRACE_CACHE_DIR", raising=False)
    monkeypatch.setattr("alltrace.trace.places._SYSTEM", system)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if base is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert cache_folder() == platformdirs.user_cache_dir("alltrace", appauthor=False) == str(default_folder())


def test_a_relative_folder_is_ignored_as_the_standard_says(monkeypatch):
    monkeypatch.delenv("ALLTRACE_CACHE_DIR", raising=False)
    monkeypatch.setattr("alltrace.trace.places._SYSTEM", "linux")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == "/home/me/.cache/alltrace"


def test_or_where_the_user_wants_it(monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", "/my/cache")
    assert cache_folder() == str(default_folder()) == "/my/cache"

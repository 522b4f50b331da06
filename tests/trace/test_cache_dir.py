import os
import pwd
import stat
from types import SimpleNamespace

import platformdirs
import pytest

from alltrace.trace import cache_dir as cache_folder
from alltrace.trace.cache_dir import default_folder, existing_folder, own_folder
from alltrace.trace.errors import InputError, UsageError


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that belongs to the user, whose umask lets the group write, as many distributions have it."""
    monkeypatch.setattr(cache_folder, "_usual_folder", lambda: tmp_path / "usual")
    made = tmp_path / "cache"
    made.mkdir()
    made.chmod(0o755)
    before = os.umask(0o002)
    yield made
    os.umask(before)


@pytest.fixture
def home(monkeypatch):
    """Sets HOME and what the password database has for the user."""
    for variable in ("ALLTRACE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)

    def unknown(_number):
        raise KeyError

    def set_home(variable, known):
        if variable is not None:
            monkeypatch.setenv("HOME", variable)
        monkeypatch.setattr(
            pwd, "getpwuid", unknown if known is None else lambda _number: SimpleNamespace(pw_dir=known)
        )

    return set_home


@pytest.mark.parametrize("base", [None, "", " ", "/a/b"])
def test_the_cache_is_where_the_system_has_it(monkeypatch, base):
    monkeypatch.delenv("ALLTRACE_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if base is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert str(default_folder()) == platformdirs.user_cache_dir("alltrace", appauthor=False)


def test_or_where_the_user_wants_it(monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", "/my/cache")
    assert str(default_folder()) == "/my/cache"


@pytest.mark.parametrize(("variable", "known"), [("/home/me", None), ("/home/me", "/home/other"), (None, "/home/me")])
def test_without_a_home_the_password_database_has_it(home, variable, known):
    home(variable, known)
    assert str(default_folder()) == "/home/me/.cache/alltrace"


def test_a_user_without_any_home_is_told_what_to_give(home):
    home(None, None)
    with pytest.raises(UsageError, match=r"HOME is not set and .*; give one with --cache-dir or ALLTRACE_CACHE_DIR"):
        default_folder()
    assert existing_folder() is None


def test_so_is_one_where_platformdirs_does_not_say_so(home, monkeypatch):
    home(None, None)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_names, **_options: "~/.cache/alltrace")
    with pytest.raises(UsageError, match="HOME is not set"):
        default_folder()


def test_a_new_folder_is_for_the_user_alone(folder):
    made = folder / "a" / "b"
    assert own_folder(made) == made
    assert mode(made) == 0o700
    assert own_folder(made) == made


@pytest.mark.parametrize("permissions", [0o700, 0o755, 0o711])
def test_a_folder_that_only_the_user_can_write_is_used_as_it_is(folder, permissions):
    folder.chmod(permissions)
    assert own_folder(folder) == folder
    assert mode(folder) == permissions


@pytest.mark.parametrize("permissions", [0o777, 0o1777, 0o702])
def test_a_folder_that_others_can_write_is_refused(folder, permissions):
    folder.chmod(permissions)
    with pytest.raises(InputError, match=r"cache: other users can write to it; .*chmod go-w.*--cache-dir"):
        own_folder(folder)


@pytest.mark.parametrize(
    ("name", "members", "own", "refused"),
    [
        ("me", [], True, False),
        ("me", ["me"], True, False),
        ("me", ["you"], True, True),
        ("staff", [], True, True),
        ("me", [], False, True),
    ],
)
def test_a_group_may_write_where_it_is_the_users_own(folder, monkeypatch, name, members, own, refused):
    folder.chmod(0o775)
    group = folder.stat().st_gid
    monkeypatch.setattr(
        pwd, "getpwuid", lambda _number: SimpleNamespace(pw_name="me", pw_gid=group if own else group + 1)
    )
    monkeypatch.setattr(cache_folder.grp, "getgrgid", lambda _number: SimpleNamespace(gr_name=name, gr_mem=members))
    if refused:
        with pytest.raises(InputError, match="other users can write to it"):
            own_folder(folder)
    else:
        assert own_folder(folder) == folder


def test_a_group_that_nobody_knows_is_not_the_users_own(folder, monkeypatch):
    folder.chmod(0o775)

    def unknown(_number):
        raise KeyError

    monkeypatch.setattr(cache_folder.grp, "getgrgid", unknown)
    with pytest.raises(InputError, match="other users can write to it"):
        own_folder(folder)


@pytest.mark.parametrize("known", [True, False])
def test_a_folder_of_another_user_is_refused(folder, monkeypatch, known):
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)

    def owner(_number):
        if known:
            return SimpleNamespace(pw_name="you")
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", owner)
    name = "you" if known else str(folder.stat().st_uid)
    with pytest.raises(
        InputError,
        match=rf"cache: it belongs to another user, {name}; expected your own cache " rf"folder; .*--cache-dir",
    ):
        own_folder(folder)


def test_a_folder_of_another_user_that_was_asked_for_may_be_read(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert own_folder(folder) == folder
    monkeypatch.setattr(cache_folder, "_usual_folder", lambda: folder)  # but not where HOME is that of somebody else
    with pytest.raises(InputError, match="it belongs to another user"):
        own_folder(folder)


def test_a_folder_that_cannot_be_made_is_a_sentence(folder):
    (folder / "file").write_text("")
    with pytest.raises(
        InputError, match=r"file/a: the cache cannot be written \(Not a directory\); give another folder"
    ):
        own_folder(folder / "file" / "a")


def test_a_folder_is_only_looked_into_where_it_may_be_used(folder, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(folder / "none"))
    assert existing_folder() is None
    assert not (folder / "none").exists()
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(folder))
    assert existing_folder() == folder
    folder.chmod(0o777)
    assert existing_folder() is None

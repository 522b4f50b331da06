"""Where the cache is, and whether only the user can write to it.

The cache holds data only, and nothing in it is ever executed; but anyone who can write to it can change answers.
"""

import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from alltrace.trace.errors import AlltraceError, InputError, UsageError

_VARIABLE = "ALLTRACE_CACHE_DIR"
_ELSEWHERE = f"give another folder with --cache-dir or {_VARIABLE}"


def default_folder() -> Path:
    """The user's cache folder: `ALLTRACE_CACHE_DIR`, or the system's place for caches."""
    named = os.environ.get(_VARIABLE)
    if named:
        return Path(named)
    folder = _usual_folder()
    if folder is None:
        raise UsageError(
            "no cache folder is known, because HOME is not set and the password database does not contain this user; "
            f"give one with --cache-dir or {_VARIABLE}"
        )
    return folder


def own_folder(folder: Path) -> Path:
    """Make `folder`, for this user alone, unless it exists; and return it if it can be used as a cache."""
    # A folder that somebody else filled and that this user cannot write to may be used for reading if it was requested.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError as error:
        raise unwritable(folder, error) from error
    if not os.access(folder, os.W_OK) and folder != _usual_folder():
        return folder
    if facts.st_uid != os.geteuid():
        owner = f"it belongs to another user, {_user_name(facts.st_uid)}"
        raise InputError(folder, found=owner, expected="your own cache folder", advice=_ELSEWHERE)
    others = facts.st_mode & stat.S_IWOTH or (facts.st_mode & stat.S_IWGRP and not _is_private(facts.st_gid))
    if others:
        raise InputError(
            folder,
            found="other users can write to it",
            expected="a cache folder that only you can write to",
            advice=f"remove that permission (chmod go-w), or {_ELSEWHERE}",
        )
    return folder


def existing_folder() -> Path | None:
    """The user's cache folder if it exists and can be used; None if there is nothing to look for."""
    with suppress(AlltraceError):
        folder = default_folder()
        return own_folder(folder) if folder.is_dir() else None
    return None


def unwritable(folder: Path, error: OSError) -> InputError:
    return InputError.cannot_be(
        "written", folder, error, what="the cache", advice="give another folder with --cache-dir"
    )


def _usual_folder() -> Path | None:
    """The system's place for caches; None if the user's home is not known."""
    import platformdirs  # most commands need no cache

    try:
        folder = Path(platformdirs.user_cache_dir("alltrace", appauthor=False))
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None  # older versions of platformdirs then give a folder named ~


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _is_private(group_id: int) -> bool:
    """Whether a group has only this user: many distributions create one per user, for its files."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return group_id == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}

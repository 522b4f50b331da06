"""Where copies of reports go: a folder, a server that takes PUT, or what fsspec opens. Cut copies are resumed."""

import base64
import http
import http.client
import io
import os
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from alltrace.trace.errors import UsageError

_EXTRAS = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_BLOCK = 1 << 20
_LIMIT_S = 60.0
_NO_HEAD = (403, 405, 501)
_COMPARED = 1 << 16
"""How many of the last bytes on a server are compared with the file, before the rest is sent."""


class Store(Protocol):
    def label(self, name: str) -> str:
        """Where a file is, for messages; without passwords."""

    def size(self, name: str) -> int | None:
        """How many bytes of a file exist at the place; None if there is none, or if unknown."""

    def put(self, path: Path, name: str) -> int:
        """Copy a file, or its missing part; returns how many bytes are there afterwards."""


def store_at(url: str) -> Store:
    scheme, colon, rest = url.partition("://")
    if not colon:
        raise UsageError(
            f"{url!r} is not a URL; expected such as s3://bucket/folder, https://host/folder or file:///folder"
        )
    if scheme == "file":
        return FolderStore(Path(urllib.parse.unquote(rest)))
    if scheme in ("http", "https"):
        return HttpStore(url)
    return _FsspecStore(url)


def public_url(url: str) -> str:
    """A URL without what may be secret in it: user, password and query."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class FolderStore:
    """A folder, such as one that all nodes share. A file gets its name once it is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def label(self, name: str) -> str:
        return str(self._folder / name)

    def size(self, name: str) -> int | None:
        with suppress(OSError):
            return (self._folder / name).stat().st_size
        return None

    def put(self, path: Path, name: str) -> int:
        """Append what a copy that was cut short lacks, if all of it is as in the file; else copy the file."""
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        with path.open("rb") as source, part.open("r+b" if part.exists() else "w+b") as copy:
            common_bytes = _alike(source, copy)
            copy.truncate(common_bytes)
            source.seek(common_bytes)
            copy.seek(common_bytes)
            while block := source.read(_BLOCK):
                copy.write(block)
            copy.flush()
            os.fsync(copy.fileno())
            size = copy.tell()
        part.replace(target)
        return size


def _alike(source: io.BufferedReader, copy: io.BufferedRandom) -> int:
    """How many bytes two files begin with alike, in blocks."""
    common_bytes = 0
    while True:
        old = copy.read(_BLOCK)
        if not old or source.read(len(old)) != old:
            return common_bytes
        common_bytes += len(old)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a password would go to the server that the redirect names."""

    def redirect_request(self, *_: Any) -> None:
        """No request: the answer that redirects is an error."""
        return


_OPENER = urllib.request.build_opener(_NoRedirects)


# What the server has a part of is sent from there on (`Content-Range`, RFC 9110 section 14.5), if the server takes that
# and the part ends as the file does there. `url`: the folder. A password in it becomes a header, and a query is sent
# with each file.
class HttpStore:
    """A server that takes files by PUT, as WebDAV and stores of artifacts do."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._query = parts.query
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        self._base = f"{parts.scheme}://{host}{'' if parts.port is None else f':{parts.port}'}{parts.path.rstrip('/')}"
        self._headers = {}
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def label(self, name: str) -> str:
        """The URL without password and query."""
        return f"{self._base}/{urllib.parse.quote(name)}"

    def size(self, name: str) -> int | None:
        with suppress(OSError, http.client.HTTPException, ValueError):
            return self._length(name)
        return None

    def _length(self, name: str) -> int:
        with self._ask(name, "HEAD") as answer:
            return int(answer.headers["Content-Length"] or "")

    def put(self, path: Path, name: str) -> int:
        """Send the file from where the server's part of it ends; all of it if there is none or the server refuses."""
        length = path.stat().st_size
        there = self.size(name) or 0
        if 0 < there < length and self._ends_alike(path, name, there):
            with suppress(OSError, http.client.HTTPException):
                self._send(path, name, there, length)
                if self.size(name) == length:
                    return length
        self._send(path, name, 0, length)
        try:
            return self._length(name)
        except urllib.error.HTTPError as error:
            if error.code in _NO_HEAD:  # it took all, and does not show more
                return length
            raise
        except ValueError:
            return length

    def _ends_alike(self, path: Path, name: str, there: int) -> bool:
        """Whether the last bytes that the server has are those of the file; false if it does not send them."""
        begin = max(0, there - _COMPARED)
        with path.open("rb") as file:
            file.seek(begin)
            own = file.read(there - begin)
        try:
            with self._ask(name, "GET", headers={"Range": f"bytes={begin}-{there - 1}"}) as answer:
                return bool(answer.status == http.HTTPStatus.PARTIAL_CONTENT and answer.read(len(own) + 1) == own)
        except (OSError, http.client.HTTPException):
            return False

    def _send(self, path: Path, name: str, begin: int, length: int) -> None:
        with path.open("rb") as file:
            file.seek(begin)
            headers = {"Content-Length": str(length - begin), "Content-Type": "application/octet-stream"}
            if begin:
                headers["Content-Range"] = f"bytes {begin}-{length - 1}/{length}"
            with self._ask(name, "PUT", file, headers) as answer:
                answer.read()

    def _ask(self, name: str, method: str, data: Any = None, headers: dict[str, str] | None = None) -> Any:
        url = self.label(name) + (f"?{self._query}" if self._query else "")
        # http or https
        request = urllib.request.Request(url, data, {**self._headers, **(headers or {})}, method=method)  # noqa: S310
        return _OPENER.open(request, timeout=_LIMIT_S)


class _FsspecStore:
    """What fsspec opens."""

    def __init__(self, url: str) -> None:
        import fsspec

        scheme = url.partition("://")[0]
        try:
            self._system, base = fsspec.core.url_to_fs(url)
        except ImportError as error:
            package = _EXTRAS.get(scheme)
            how = f"pip install {package}" if package else str(error)
            raise UsageError(f"nothing here opens {scheme}:// URLs; {how}") from error
        except ValueError as error:
            raise UsageError(f"{url!r} cannot be written to ({error}); expected such as s3://bucket/folder") from error
        self._base = str(base).rstrip("/")
        named = self._system.protocol
        # an object store has no folders to make: there it would make the bucket that a typing error names
        self._has_folders = _EXTRAS.keys().isdisjoint({named} if isinstance(named, str) else named)

    def label(self, name: str) -> str:
        return f"{self._base}/{name}"

    def size(self, name: str) -> int | None:
        try:
            return int(self._system.size(self.label(name)))
        except Exception:  # noqa: BLE001  stores have their own errors for missing objects; copying reports others
            return None

    def put(self, path: Path, name: str) -> int:
        """Copy all of it; parts of a large one are the store's."""
        target = self.label(name)
        if self._has_folders:
            self._system.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
        self._system.put_file(str(path), target)
        self._system.invalidate_cache()
        there = self.size(name)
        return -1 if there is None else there

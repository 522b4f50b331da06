"""What a cause needs of the machine: control groups with a limit, and a link between network namespaces with a rate."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = Path("/sys/fs/cgroup")
GROUP = f"alltrace-truth-{os.getpid()}"
LINK, ADDRESS, PEER_ADDRESS = "alltrace0", "10.213.77.1", "10.213.77.2"
_SPACE, _PEER = "alltrace-truth", "alltrace1"
FAR_RANK = 3
"""The rank behind the link."""

_ATTEMPTS = 50
# torchrun replaces two dollar signs by one, so the shell reads its number
_ENTER = 'read -r number rest < /proc/self/stat; echo $number > "$TRUTH_GROUP/cgroup.procs"'


def lacking(needs: str | None) -> str | None:
    """Why the machine does not allow what a cause needs; None if it does."""
    if needs is None:
        return None
    if needs == "link":
        try:
            with link():
                subprocess.run(_rate("400mbit"), check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
            return f"no link between network namespaces can be made ({said})"
        return None
    try:
        with groups(needs):
            pass
    except OSError as error:
        return f"no control group of {needs} can be made ({error.strerror}: {error.filename})"
    return None


def _rate(rate: str) -> list[str]:
    return ["tc", "qdisc", "replace", "dev", LINK, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms"]


@contextmanager
def link() -> Iterator[None]:
    """A link to a network namespace while the block runs."""
    with ExitStack() as stack:
        for begin, end in (
            (["ip", "netns", "add", _SPACE], ["ip", "netns", "del", _SPACE]),
            (
                ["ip", "link", "add", LINK, "type", "veth", "peer", "name", _PEER, "netns", _SPACE],
                ["ip", "link", "del", LINK],
            ),
        ):
            subprocess.run(begin, check=True, capture_output=True)
            stack.callback(subprocess.run, end, capture_output=True, check=False)
        inside = ["ip", "netns", "exec", _SPACE]
        for command in (
            ["ip", "addr", "add", f"{ADDRESS}/24", "dev", LINK],
            ["ip", "link", "set", LINK, "up"],
            [*inside, "ip", "addr", "add", f"{PEER_ADDRESS}/24", "dev", _PEER],
            [*inside, "ip", "link", "set", _PEER, "up"],
            [*inside, "ip", "link", "set", "lo", "up"],
        ):
            subprocess.run(command, check=True, capture_output=True)
        yield


@contextmanager
def groups(kind: str) -> Iterator[Path]:
    """A control group of a kind while the block runs; its folder."""
    folder = GROUPS / kind / GROUP
    folder.mkdir()
    try:
        yield folder
    finally:
        for _ in range(_ATTEMPTS):  # until its last process has ended
            with suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


@contextmanager
def prepared(needs: str | None) -> Iterator[dict[str, str]]:
    """What a cause needs while the block runs; the variables that its program reads."""
    if needs is None:
        yield {}
    elif needs == "link":
        with link():
            names = {"GLOO_SOCKET_IFNAME": LINK, "MASTER_ADDR": ADDRESS, "TRUTH_FAR_IFNAME": _PEER}
            yield {**names, "TRUTH_ON": shlex.join(_rate("400mbit")), "TRUTH_OFF": f"tc qdisc del dev {LINK} root"}
    else:
        with groups(needs) as folder:
            yield {"TRUTH_GROUP": str(folder)}


def placed(rank_variable: str, culprit: int | None, needs: str | None) -> list[str]:
    """The beginning of a rank's command: the culprit is in the group or behind the link."""
    text = ""
    if needs == "link":
        space = f'export GLOO_SOCKET_IFNAME="$TRUTH_FAR_IFNAME"; exec ip netns exec {_SPACE} "$@"'
        text += f'if [ "${rank_variable}" = {FAR_RANK} ]; then {space}; fi; '
    elif needs is not None:
        text += f'if [ "${rank_variable}" = {culprit} ]; then {_ENTER}; fi; '
    return ["sh", "-c", text + 'exec "$@"', "placed"]

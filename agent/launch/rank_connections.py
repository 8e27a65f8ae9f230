"""Report whether the ranks of this node are connected to other ranks. Without a connection, each rank trains alone.

Ranks of several nodes communicate over TCP. Ranks of one node use the loopback device, the node's own address or shared
memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.remote.processes import RunProcess
from agent.runs.run_directory import APART, LINKED, RunDirectory

LOOKS: Final = 3
"""Number of checks without a connection until ranks are reported as training apart."""
ESTABLISHED: Final = "01"
_TIME_WAIT: Final = "06"
_MAPPED: Final = bytes(10) + b"\xff\xff"
_SHARED: Final = re.compile(r"^\S+ .w.s \S+ (\S+) (\d+)\s+(?:/dev/shm/|/memfd:|/SYSV)", re.MULTILINE)
"""A writable mapping of shared memory (proc_pid_maps(5))."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """A TCP connection of this node."""

    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    inode: int
    """Inode of the socket; 0 if no process has the socket any more."""


def parse_connections(text: str) -> Iterator[Connection]:
    """Parse /proc/net/tcp or /proc/net/tcp6 (proc_net_tcp(5)). Malformed lines are skipped."""
    for line in text.splitlines()[1:]:
        with contextlib.suppress(ValueError, IndexError):
            words = line.split()
            yield Connection(local=_endpoint(words[1]), remote=_endpoint(words[2]), state=words[3], inode=int(words[9]))


def _endpoint(text: str) -> tuple[str, int]:
    """Parse an address and a port, such as `0100007F:1F90`. Raises ValueError if they are malformed.

    An IPv4 address in an IPv6 socket counts as IPv4.
    """
    digits, _, port = text.partition(":")
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    address = b"".join(words)
    if len(address) == 16 and address.startswith(_MAPPED):
        address = address[len(_MAPPED) :]
    if len(address) not in (4, 16):
        raise ValueError(text)
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, address), int(port, 16)


def connections(net: Path) -> Iterator[Connection]:
    """Yield the TCP connections listed in a folder such as /proc/net. Unreadable tables are skipped."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            yield from parse_connections((net / name).read_text(encoding="ascii", errors="replace"))


def sockets(process: Path) -> Iterator[int]:
    """Yield the inodes of a process's sockets; none if they cannot be read. `process` is its folder in /proc."""
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if found := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                    yield int(found[1])


class LinkWatch:
    """Watch the connections of one run's ranks on this node."""

    def __init__(
        self, directory: RunDirectory, node: str, others: Collection[str], *, proc: Path = Path("/proc")
    ) -> None:
        """Start to watch. `others`: addresses of the run's other nodes; empty if all ranks are on this node."""
        self._directory, self._node, self._others, self._proc = directory, node, frozenset(others), proc
        self._attempt = directory.attempt
        self._looks = 0
        self._is_linked = False
        self._closed_before = {self._ends(each) for each in connections(proc / "net") if each.state == _TIME_WAIT}

    def look(self, ranks: Sequence[RunProcess]) -> None:
        """Check the connections of the processes `ranks`, unless a connection between ranks was found before.

        The first connection that is found is reported with a file in the run's directory. If LOOKS checks find none,
        another file reports that.
        """
        if self._is_linked:
            return
        found = list(connections(self._proc / "net"))
        if self._has_closed(found) or (ranks and self._has_open(found, ranks)):
            self._is_linked = True
            self._report(LINKED)
        elif ranks:
            self._looks += 1
            if self._looks == LOOKS:
                self._report(APART)

    def _report(self, kind: str) -> None:
        with contextlib.suppress(OSError):
            self._directory.link_report(kind, self._attempt, self._node).touch()

    @staticmethod
    def _ends(each: Connection) -> tuple[tuple[str, int], tuple[str, int]]:
        return each.local, each.remote

    def _has_closed(self, found: Sequence[Connection]) -> bool:
        """Return whether one of these connections may have been between ranks and was closed in the last minute.

        The kernel does not report which process had it. Programs that exchange data only briefly are detected this way.
        """
        return any(
            each.state == _TIME_WAIT
            and (each.remote[0] in self._others if self._others else each.local[0] == each.remote[0])
            and self._ends(each) not in self._closed_before
            for each in found
        )

    def _has_open(self, found: Sequence[Connection], ranks: Sequence[RunProcess]) -> bool:
        """Return whether one of `ranks` is connected to another node, or to another rank if all ranks are on this node.

        `found` are this node's connections. Ranks on one node that share memory count as connected.
        """
        found = [each for each in found if each.state == ESTABLISHED and each.inode]
        if self._others:
            found = [each for each in found if each.remote[0] in self._others]
            return bool(found) and not self._owners(ranks).keys().isdisjoint(each.inode for each in found)
        owners = self._owners(ranks)
        by_end = {each.local: owners.get(each.inode) for each in found}
        for each in found:
            own, other = owners.get(each.inode), by_end.get(each.remote)
            if own is not None and other is not None and own != other:
                return True
        return self._share_memory(ranks)

    def _owners(self, ranks: Sequence[RunProcess]) -> Mapping[int, int]:
        """Return the rank that has each socket, by the socket's inode; -1 if the rank is unknown."""
        return {
            inode: -1 if each.rank is None else each.rank
            for each in ranks
            for inode in sockets(self._proc / str(each.pid))
        }

    def _share_memory(self, ranks: Sequence[RunProcess]) -> bool:
        """Return whether two ranks share writable memory, as under Open MPI."""
        users = defaultdict[tuple[str, str], set[int | None]](set)
        for each in ranks:
            with contextlib.suppress(OSError):
                text = (self._proc / str(each.pid) / "maps").read_text(encoding="utf-8", errors="replace")
                for mapping in _SHARED.findall(text):
                    users[mapping].add(each.rank)
        return any(len(ranks) > 1 for ranks in users.values())

"""Parse the log of launchers: messages of horovodrun, mpirun, SSH, Gloo and ranks about what failed.

Ranks write to the log too, so each pattern needs linear time, and each number has at most nine digits.
"""

from __future__ import annotations

import re
from typing import Final

from agent.remote.ssh import SSH_FAILED
from agent.spec.long_lines import without_controls

_MAX_LINE: Final = 4096
"""Maximum number of characters that are searched in a line."""
_FIRST: Final = re.compile(
    r"The first process to do so was:\s+Process name: (?:\[\[\d+,\d+\],)?(\d{1,9})\]?\s+Exit code:\s+(-?\d{1,9})\n"
)
"""Message of horovodrun (with Gloo) and mpirun."""
_ENDED_FIRST: Final = re.compile(r"^\[launcher\] rank (\d{1,9}) exited first: (-?\d{1,9})$", re.MULTILINE)
"""Message of `agent.launch.ssh_launcher`."""
_HOST_ENDED: Final = re.compile(r"^\[launcher\] (\S{1,255}) ended: (-?\d{1,9})$", re.MULTILINE)
"""Message of `agent.launch.ssh_launcher` if a host's ranks are gone without a report. `agent.launch.mpirun` and
`agent.launch.gloo_store` also print it for their hosts."""
_SIGNALLED: Final = re.compile(r"process rank (\d{1,9}) with PID \d+ on node \S+ exited on signal (\d{1,9})\b")
"""Message of mpirun only, like the next one."""
_SILENT: Final = re.compile(
    r"lost communication with a remote daemon(?:(?!lost communication)[\s\S]){0,2000}?"
    r"Remote daemon: \S{1,255} on node (\S{1,255})"
)
_BROKEN: Final = re.compile(
    r"^(?:\[\d+\]<stderr>:)?(?:Timeout, server \S+ not responding|client_loop: send disconnect: |"
    r"Connection to \S+ closed by remote host|Connection (?:reset|closed) by \S+ port \d+|"
    r"(?:Connection to \S+ port \d+|Read from remote host \S+): )",
    re.MULTILINE,
)
"""Messages of OpenSSH's client when an established connection breaks (clientloop.c and packet.c of OpenSSH 9)."""
_CLOSED: Final = re.compile(
    r"^(?:\[\d{1,9}\]<stderr>:)?Connection to (\S{1,255}) closed by remote host\.\s*$", re.MULTILINE
)
"""Message of OpenSSH's client when sshd on the host closes an established connection."""
_TIMED_OUT: Final = "Connection timed out"
"""Message of Gloo, Open MPI and NCCL when TCP gives up on a node. Only Gloo prints the node's address before it."""
_PEER: Final = re.compile(r"\[(\d{1,3}(?:\.\d{1,3}){3})\]:\d{1,5}: $")
_MAX_PEER: Final = 40
_LAUNCHED: Final = "\n[supervisor] $ "
"""Beginning of the last attempt's output in the log."""
_OUT_OF_MEMORY: Final = re.compile(
    r"^(?:\[\d{1,9}\]<stderr>:)?\[launcher\] rank (\d{1,9}): (perhaps |)out of memory: ([^\n]{1,400})$", re.MULTILINE
)
"""Message of `agent.launch.out_of_memory`."""
_EXCEPTION_BYTES: Final = 1 << 22
"""Number of bytes at the end of a log that are searched for a rank's exception. Its message may be long."""
_GAVE_UP: Final = re.compile(
    r"^\[\d+\]<stderr>:.*?(?:Timed out waiting (\d{1,9})ms for |Wait timeout after (\d{1,9}) seconds for key)",
    re.MULTILINE,
)
"""Messages of a rank after Gloo's time-out: in a collective (in ms), or earlier, while the ranks connect (in s)."""
_NOTICED: Final = re.compile(
    r"^\[(\d{1,9})\]<stderr>:.*?(?:Horovod background loop uncaught exception|Wait timeout after \d+ seconds for key|"
    r"Horovod has been shut down|HorovodInternalError|a rank exited or its host is lost)",
    re.MULTILINE,
)
"""Messages of a rank that can no longer reach another one, after Gloo's time-out or because a connection was closed.
Horovod's thread prints them on each rank that is alive, no matter what the program does."""
_NOTICE_BYTES: Final = 1 << 15
"""Maximum number of bytes that a rank prints from such a message to its exit: tracebacks of TensorFlow's threads."""


def log_bytes(ranks: int) -> int:
    """Return how many bytes of the end of a log to read to find the cause of a failure, at most 32 MiB.

    The number grows with the number of ranks, because all of them may fail and print errors at the same time.
    """
    return min(_EXCEPTION_BYTES + _NOTICE_BYTES * (1 + ranks), 1 << 25)


def last_attempt(log: str) -> str:
    """Return the last attempt's output from the end of a log, without colors and other control characters.

    Long lines are truncated to 4,096 characters.
    """
    return "\n".join(line[:_MAX_LINE] for line in without_controls(log.rpartition(_LAUNCHED)[2]).split("\n"))


def closing_hosts(log: str) -> set[str]:
    """Return the hosts that closed a connection of the launcher in the last attempt of a log, by name or address.

    sshd on a host closes a connection if, for example, the processes of the ranks are killed.
    """
    return set(_CLOSED.findall(last_attempt(log)))


def unreached_hosts(log: str) -> list[str]:
    """Return the names of the hosts that mpirun, or deepcdk's own launcher, could no longer reach, in log order.

    `log` is the output of one attempt.
    """
    return _SILENT.findall(log) or [name for name, status in ended_hosts(log) if status == SSH_FAILED]


def ended_hosts(log: str) -> list[tuple[str, int]]:
    """Return the hosts whose launcher process failed, with its status, in the order of `log`, an attempt's output."""
    return [(name, int(status)) for name, status in _HOST_ENDED.findall(log)]


def has_broken_connection(log: str) -> bool:
    """Return whether SSH reported in `log`, an attempt's output, that an established connection broke."""
    return _BROKEN.search(log) is not None


def timed_out_peers(log: str) -> set[str] | None:
    """Return the addresses of the nodes that ranks could not reach; None if no rank reported this.

    `log` is the output of one attempt. Ranks report it over Gloo, Open MPI and NCCL, but only Gloo prints the address.
    With the others, the set is empty.
    """
    found, is_lost = set(), False
    for line in log.split("\n"):
        for before in line.split(_TIMED_OUT)[:-1]:
            if peer := _PEER.search(before[-_MAX_PEER:]) if "pair.cc:" in line else None:
                found.add(peer[1])
            of_mpi, of_nccl = "btl_tcp" in line and before.endswith(": "), before.endswith(" failed : ")
            is_lost = is_lost or bool(peer) or of_mpi or (of_nccl and "Call to " in line)
    return found if is_lost else None


def out_of_memory(log: str) -> list[tuple[int, str, str]]:
    """Return the ranks that ran out of memory: the number, "" or "perhaps ", and details.

    `log` is the output of one attempt.
    """
    return [(int(rank), perhaps, text) for rank, perhaps, text in _OUT_OF_MEMORY.findall(log)]


def given_up(log: str) -> tuple[list[tuple[float, bool]], set[int]]:
    """Return the time-outs that ranks reported, and the set of ranks that noticed a failure.

    `log` is the output of one attempt. Each time-out is a pair: seconds, and whether the ranks were still connecting.
    The list is empty if the first rank that exited had not noticed anything, because then its own failure is the cause.
    """
    waits = [(float(ms) / 1000 if ms else float(s), bool(s)) for ms, s in _GAVE_UP.findall(log)]
    noticed = {int(rank) for rank in _NOTICED.findall(log)}
    first = first_ended(log)
    return ([] if first and first[0] not in noticed else waits), noticed


def first_ended(log: str) -> tuple[int, int] | None:
    """Return the rank that exited first and its status; None if the launcher does not report it.

    `log` is the output of one attempt. A status after a signal is negative, or 128 + n from a shell.
    """
    found = (
        _FIRST.findall(log)
        or _ENDED_FIRST.findall(log)
        or [(rank, f"-{number}") for rank, number in _SIGNALLED.findall(log)]
    )
    return (int(found[-1][0]), int(found[-1][1])) if found else None

"""Find out why a launcher failed, from the end of its log and from the nodes' reports.

The most specific cause wins: a node that leaves the cluster, stuck ranks, a rank without memory, ranks that were killed
with their connection, an unreachable host, ranks that did not report, the rank that exited first, a failed launcher on
a host, or only the launcher's status.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from agent.files.atomic_write import MAKE_ROOM, reports_full_disk
from agent.files.safe_read import read_regular
from agent.launch import full_disk
from agent.remote.ssh import SSH_FAILED
from agent.runs.run_directory import RunDirectory
from agent.spec.nodes import LEAVING, Node
from agent.spec.run import RunSpec
from agent.supervisor import launcher_messages, rank_error

MOST_NOTICE_BYTES: Final = 1 << 16
_MAX_STALLED_BYTES: Final = 1 << 14
_RANK: Final = re.compile(r"\[(\d{1,9})\]<std")
_FULL_LINES: Final = 200
_FULL_SHOWN: Final = 200


def reason(spec: RunSpec, status: int, log: str, running: Collection[str] = ()) -> str:
    """Return why a run's launcher failed, as text, with advice if the log reports a full disk.

    `status` is the launcher's exit status, `log` the end of its output. `running` contains the names of the hosts that
    are known to respond and that have not rebooted during the attempt.
    """
    log = launcher_messages.last_attempt(log)
    if leaving := leaving_hosts(spec):
        return f"{leaving}; to continue once its group has launched a replacement: `fab resume {spec.run_id}`"
    named = (
        stuck_ranks(spec)
        or out_of_memory(spec.hosts, log)
        or killed_ranks(spec.hosts, log, running)
        or unreachable_host(log)
        or unreported_ranks(spec.hosts, log)
    )
    named = named or first_ended_rank(spec.hosts, log) or ended_host(log)
    return (named or f"the launcher exited with {describe_status(status)}") + full_disk_hint(spec.hosts, log)


def full_disk_hint(hosts: Sequence[Node], log: str) -> str:
    """Return text about the full disk that a log reports, with its host and advice; "" if the log reports none.

    The text names a path on the disk if deepcdk measured it. Otherwise it quotes the last line about a full disk.
    """
    places = _places(hosts)
    for number, path, free in full_disk.parse(log):
        if number < len(places):
            return f"; the disk with {path} on {places[number]} is full ({free}); do: free space on it{MAKE_ROOM}"
    lines = log.split("\n")[-_FULL_LINES:]
    found = [line for line in lines if reports_full_disk(line)]
    if not found:
        return ""
    rank = _RANK.match(found[-1])
    where = f" on {places[int(rank[1])]}" if rank and int(rank[1]) < len(places) else ""
    return f"; a disk{where} is full: {found[-1].strip()[:_FULL_SHOWN]}; do: free space on it{MAKE_ROOM}"


def leaving_hosts(spec: RunSpec) -> str:
    """Return the run's hosts that leave the cluster, with the reason in each termination notice; "" if none leaves."""
    found = []
    for host in spec.hosts:
        try:
            notice = read_regular(Path(spec.efs_mount) / LEAVING / host.instance_id, MOST_NOTICE_BYTES)
        except OSError:
            continue
        text = notice.decode("utf-8", errors="replace")
        # EC2's own notice follows after the colon, as JSON.
        found.append(f"{host.name} is leaving the cluster ({text.strip().partition(': ')[0]})")
    return ", ".join(found)


def stuck_ranks(spec: RunSpec) -> str:
    """Return as text which ranks were stuck in the last attempt, from their nodes' reports; "" if none was.

    Ranks can also write these files. So only the numbers of a node's own ranks count in its file.
    """
    directory, first, named, many = RunDirectory(path=Path(spec.run_directory)), 0, [], 0
    attempt = directory.attempt
    for host in spec.hosts:
        own = range(first, first + host.slots)
        first += host.slots
        with contextlib.suppress(OSError, ValueError):
            words = read_regular(directory.stall_report(attempt, host.name), _MAX_STALLED_BYTES).split()
            if ranks := sorted({int(word) for word in words}.intersection(own)):
                named.append(f"{format_ranks(ranks)} on {host.name}")
                many += len(ranks)
    if not named:
        return ""
    minutes = f"{spec.stall_after_s / 60:g} min"
    return f"{' and '.join(named)} {'were' if many > 1 else 'was'} stuck: no step, output or CPU time for {minutes}"


def out_of_memory(hosts: Sequence[Node], log: str) -> str:
    """Return text with a rank that ran out of memory, or perhaps did, with its node and details; "" if none did.

    A rank that certainly ran out of memory is preferred. `log` is the output of one attempt.
    """
    places = _places(hosts)
    found = [each for each in launcher_messages.out_of_memory(log) if each[0] < len(places)]
    if not found:
        return ""
    rank, perhaps, text = min(found, key=lambda each: bool(each[1]))
    return f"rank {rank} on {places[rank]} {perhaps}ran out of memory: {text}"


def killed_ranks(hosts: Sequence[Node], log: str, running: Collection[str]) -> str:
    """Return the hosts that closed their ranks' connection and are still `running`, with the likely cause; else "".

    sshd closes a connection if the process for it is killed. This process belongs to the user for ranks.
    """
    closed = launcher_messages.closing_hosts(log)
    found = [host.name for host in hosts if {host.name, host.address} & closed and host.name in running]
    if not found:
        return ""
    up = "the nodes are" if found[1:] else "the node is"
    return (
        f"all processes of the ranks on {' and '.join(found)} were killed, including their SSH connection, but {up} "
        "still running; a program does this with `kill -1` or kill(-1, ...), so remove such a call"
    )


def unreachable_host(log: str) -> str:
    """Return text with the last host that the launcher can no longer reach, and advice; "" if it reaches all hosts.

    `log` is the output of one attempt.
    """
    if not (found := launcher_messages.unreached_hosts(log)):
        return ""
    node = found[-1]
    return f"{node} no longer responds; do: `fab replace {node.removeprefix('deeplearning-')}`, then `fab resume`"


def lost_connection(hosts: Sequence[Node], log: str) -> str:
    """Return text that the launcher's connection to a host broke, even if the host answers again; "" if none broke.

    `log` is the output of one attempt. SSH exits with status 255 when the network fails for a minute, but a user
    program can also exit with 255. So if a rank has this status, SSH must have printed an error too.
    """
    if found := launcher_messages.unreached_hosts(log):
        return f"the connection to {found[-1]} was lost"
    first, places = launcher_messages.first_ended(log), _places(hosts)
    if first and first[1] == SSH_FAILED and first[0] < len(places) and launcher_messages.has_broken_connection(log):
        return f"the connection to {places[first[0]]} was lost"
    return ""


def lost_network(hosts: Sequence[Node], log: str) -> str:
    """Return text with the nodes that ranks could not reach, even if they answer again; "" if no rank reported this.

    `log` is the output of one attempt. Only Gloo names the node.
    """
    peers = launcher_messages.timed_out_peers(log)
    if peers is None:
        return ""
    where = sorted({host.name for host in hosts if host.address in peers})
    return f"the network between nodes failed: ranks could not reach {' and '.join(where) or 'each other'}"


def ended_host(log: str) -> str:
    """Return text with the last host whose launcher process failed in an attempt, and the status; "" for none.

    `log` is the output of the attempt.
    """
    found = launcher_messages.ended_hosts(log)
    return f"the launcher on {found[-1][0]} exited with {describe_status(found[-1][1])}" if found else ""


def unreported_ranks(hosts: Sequence[Node], log: str) -> str:
    """Return text with the ranks that printed no connection error although other ranks timed out.

    If all ranks printed such an error, the text says that instead. Return "" if no rank timed out, or if the first rank
    that exited had failed by itself. `log` is the output of one attempt. A frozen rank, or a rank on an unreachable
    host, prints nothing. All other ranks print an error: after Gloo's time-out, or when the first of them exit and
    close their connections. It is random which rank exits first.
    """
    waits, noticed = launcher_messages.given_up(log)
    if not waits:
        return ""
    places, missing = _places(hosts), missing_ranks(hosts, log)
    noticed = noticed.intersection(range(len(places)))
    wait_s, meeting = max(waits)
    done, failed = "had", "had not connected when the others"
    if not meeting:
        done, failed = "did", "printed no error when a collective"
    cause = "the log does not show which rank caused it"
    if not missing:
        when = "had connected when the others" if meeting else "printed an error when a collective"
        return f"every rank {when} timed out after {wait_s:g} s: {cause}"
    by_host: dict[str, list[int]] = {}
    for rank in missing:
        by_host.setdefault(places[rank], []).append(rank)
    named = " and ".join(f"{format_ranks(ranks)} on {host}" for host, ranks in by_host.items())
    if not missing[1:]:
        cause = "" if meeting else "the rank hung, or its node was cut off"
    others = f", but {format_ranks(sorted(noticed))} {done}" if noticed else ""
    return f"{named} {failed} timed out after {wait_s:g} s{others}" + (f": {cause}" if cause else "")


def missing_ranks(hosts: Sequence[Node], log: str) -> list[int]:
    """Return the ranks that printed no connection error although other ranks timed out, in ascending order.

    Return [] if no rank timed out, or if the first rank that exited had failed by itself. `log` is the output of one
    attempt.
    """
    waits, noticed = launcher_messages.given_up(log)
    return sorted(set(range(len(_places(hosts)))) - noticed) if waits else []


def format_ranks(ranks: Sequence[int]) -> str:
    """Format ascending rank numbers, as `rank 3` or `ranks 0-2, 5`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return f"rank{'s' if ranks[1:] else ''} {', '.join(words)}"


def first_ended_rank(hosts: Sequence[Node], log: str) -> str:
    """Return which rank exited first, with its host, status and error; "" if the launcher does not report it.

    `log` is the output of one attempt.
    """
    found, places = launcher_messages.first_ended(log), _places(hosts)
    if not found:
        return ""
    rank, status = found
    where = f" on {places[rank]}" if rank < len(places) else ""
    error = rank_error.describe(rank, log, status)
    return f"rank {rank}{where} exited first, with {describe_status(status)}{error}"


def _places(hosts: Sequence[Node]) -> list[str]:
    """Return the name of each rank's host, by rank."""
    return [host.name for host in hosts for _ in range(host.slots)]


def describe_status(status: int) -> str:
    """Format a process status, such as `status 1`, `signal 9 (Killed)` or `status 137 (Killed)`.

    A negative status is a signal. A shell reports signal n as status 128 + n.
    """
    number = -status if status < 0 else status - 128
    name = signal.strsignal(number) if 0 < number < signal.SIGRTMIN else None
    return f"{'signal' if status < 0 else 'status'} {abs(status)}{f' ({name})' if name else ''}"

"""Faults of hosts' networks: all packets dropped, sent packets dropped, or limited bandwidth."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Final

from localcloud.chaos.attempt import Attempt, Done, NoTargetError, named
from localcloud.errors import UnknownInstanceError
from localcloud.network.namespaces import enter_path, run

TABLE: Final = "localcloud_chaos"
SLOW_MBIT_PER_S: Final = 1
_DROP: Final = f"""
add table inet {TABLE}
add chain inet {TABLE} output {{ type filter hook output priority 0; policy drop; }}
add rule inet {TABLE} output oifname lo accept
"""
# Deleting a missing table fails, so it is added first.
_END_DROP: Final = f"add table inet {TABLE}\ndelete table inet {TABLE}\n"
Run = Callable[..., str]
"""Takes a command and its standard input, runs it in a host's network namespace and returns its output."""


def cut(attempt: Attempt) -> Done:
    """Drop all packets from and to a host, until the fault is repaired. Raises NoTargetError if there is no host."""
    host = attempt.host()
    instance_id = host["instance_id"]

    def mend() -> None:
        with contextlib.suppress(UnknownInstanceError):  # terminated meanwhile
            attempt.cloud.ask({"do": "mend", "instance": instance_id})

    attempt.cloud.ask({"do": "cut", "instance": instance_id})
    return Done(what=f"cut the network of {named(host)}", target=instance_id, undo=mend)


def drop(attempt: Attempt) -> Done:
    """Drop all packets that a host sends, until the fault is repaired. Only UDP senders get an error.

    Raises NoTargetError if there is no host, or if all hosts are QEMU machines.
    """
    return _inside(
        attempt,
        "dropped the packets that {} sends",
        begin=lambda run: run(["nft", "-f", "-"], _DROP),
        end=lambda run: run(["nft", "-f", "-"], _END_DROP),
    )


def slow(attempt: Attempt) -> Done:
    """Limit the bandwidth at which a host sends to 1 Mbit/s, until the fault is repaired.

    Raises NoTargetError if there is no host, if all hosts are QEMU machines, or if the chosen host has no
    default route.
    """
    rate = ("rate", f"{SLOW_MBIT_PER_S}mbit", "burst", "16k", "latency", "400ms")

    def begin(run: Run) -> None:
        words = run(["ip", "route", "show", "default"]).split()
        if "dev" not in words[:-1]:
            raise NoTargetError("it has no default route, so its link is unknown")
        run(["tc", "qdisc", "add", "dev", words[words.index("dev") + 1], "root", "tbf", *rate])

    def end(run: Run) -> None:
        # A reboot removes the interface with its limit.
        for link in re.findall(r"(?m)^qdisc tbf \S+ dev (\S+) root ", run(["tc", "qdisc", "show"])):
            run(["tc", "qdisc", "del", "dev", link, "root"])

    return _inside(attempt, f"limited the sending rate of {{}} to {SLOW_MBIT_PER_S} Mbit/s", begin=begin, end=end)


def _inside(attempt: Attempt, what: str, *, begin: Callable[[Run], object], end: Callable[[Run], object]) -> Done:
    """Inject a fault in a host's network namespace, and repair it there, even if the host has rebooted.

    `what` describes the fault, with {} for the host. `begin` and `end` take a function that runs a command there. The
    host's name is added to a NoTargetError of `begin`. Also raises NoTargetError if there is no host, or if all hosts
    are QEMU machines.
    """
    found = [host for host in attempt.hosts() if not host["agent"]]
    host = attempt.choose(found, f"running host that {attempt.fault.kind} can affect (QEMU machines do not count)")
    try:
        fd = os.open(f"/proc/{host['pid']}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NoTargetError(f"{named(host)} has already exited") from None

    def inside(command: Sequence[str], text: str = "") -> str:
        return enter_path(f"/proc/self/fd/{fd}", lambda: run(command, text))

    def undo() -> None:
        end(inside)
        os.close(fd)

    try:
        begin(inside)
    except NoTargetError as error:
        os.close(fd)
        raise NoTargetError(f"{named(host)}: {error}") from None
    except BaseException:
        os.close(fd)
        raise
    return Done(what=what.format(named(host)), target=host["instance_id"], undo=undo)

"""Faults of hosts' networks: cut off, one direction dropped, slowed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from typing import Final

from localcloud.chaos.attempt import Attempt, Done, Host, NoTargetError, named
from localcloud.errors import UnknownInstanceError
from localcloud.network.namespaces import enter_path, run

TABLE: Final = "localcloud_chaos"
SLOW_MBIT_PER_S: Final = 1


class Network:
    """The network of a host, held from a fault until its end: a host that reboots meanwhile gets another."""

    def __init__(self, host: Host) -> None:
        """Open it. Raises OSError where the host has just ended."""
        self._fd = os.open(f"/proc/{host['pid']}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def run(self, command: Sequence[str], text: str = "") -> str:
        """Run a command inside and return its output. Raises CommandError where it fails."""
        return enter_path(f"/proc/self/fd/{self._fd}", lambda: run(command, text))

    def has_drop(self) -> bool:
        """Return whether a `drop` lasts."""
        return f"table inet {TABLE}\n" in self.run(["nft", "list", "tables"])

    def end_drop(self) -> None:
        """End a `drop`, if there is one: a table that is not there cannot be deleted, but made and deleted."""
        self.run(["nft", "-f", "-"], f"add table inet {TABLE}\ndelete table inet {TABLE}\n")

    def slowed_links(self) -> list[str]:
        """Return the interfaces that a `slow` limits. A reboot takes an interface away, and its limit with it."""
        shown = self.run(["tc", "qdisc", "show"])
        return re.findall(r"^qdisc tbf \S+ dev (\S+) root ", shown, flags=re.MULTILINE)

    def end_slow(self) -> None:
        """End a `slow`, if there is one."""
        for link in self.slowed_links():
            self.run(["tc", "qdisc", "del", "dev", link, "root"])

    def close(self) -> None:
        """Let the network go."""
        os.close(self._fd)


def cut(attempt: Attempt) -> Done:
    """Let all packets of a host vanish."""
    host = attempt.host()
    instance_id = host["instance_id"]

    def mend() -> None:
        with contextlib.suppress(UnknownInstanceError):  # terminated meanwhile
            attempt.scene.ask({"do": "mend", "instance": instance_id})

    attempt.scene.ask({"do": "cut", "instance": instance_id})
    return Done(what=f"cut {named(host)} off", target=instance_id, undo=mend)


def drop(attempt: Attempt) -> Done:
    """Let what a host sends to others vanish: over TCP in silence, over UDP with an error for the sender."""
    host = _namespace_host(attempt)
    chain = f"add chain inet {TABLE} output {{ type filter hook output priority 0; policy drop; }}"
    # What a host sends to itself stays.
    rules = f"add table inet {TABLE}\n{chain}\nadd rule inet {TABLE} output oifname lo accept\n"
    network = Network(host)

    def undo() -> None:
        network.end_drop()
        network.close()

    try:
        network.run(["nft", "-f", "-"], rules)
    except BaseException:
        network.close()
        raise
    return Done(what=f"dropped what {named(host)} sends", target=host["instance_id"], undo=undo)


def slow(attempt: Attempt) -> Done:
    """Let a host send only so much in a second."""
    host = _namespace_host(attempt)
    network = Network(host)
    rate = ("rate", f"{SLOW_MBIT_PER_S}mbit", "burst", "16k", "latency", "400ms")

    def undo() -> None:
        network.end_slow()
        network.close()

    try:
        link = _default_link(network, host)
        network.run(["tc", "qdisc", "add", "dev", link, "root", "tbf", *rate])
    except BaseException:
        network.close()
        raise
    what = f"slowed what {named(host)} sends to {SLOW_MBIT_PER_S} Mbit/s"
    return Done(what=what, target=host["instance_id"], undo=undo)


def _namespace_host(attempt: Attempt) -> Host:
    """Choose a host whose network is a namespace of this machine."""
    return attempt.choose([host for host in attempt.hosts() if not host["agent"]], "host in namespaces")


def _default_link(network: Network, host: Host) -> str:
    """Return the name of a host's interface, by its default route."""
    words = network.run(["ip", "route", "show", "default"]).split()
    if "dev" not in words[:-1]:
        raise NoTargetError(f"{named(host)} has no default route")
    return words[words.index("dev") + 1]

"""Nodes of the shared cluster, with root access. One of them, the victim, writes arbitrary text to the registry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

REGISTRY = "/mnt/efs/.cluster/nodes"
NODES = "/opt/deeplearning/nodes"
VICTIM = "deeplearning-worker2"
IP, GPUS, HOST_KEY = 1, 5, 7
"""Positions of facts in a node's entry."""
SHARED_KEY = "/mnt/efs/.cluster/master.pub"
INJECTED = "/tmp/injected-by-a-worker"
FIND_AWS = "set -a; . /etc/environment; set +a; "
"""Variables of a login, with which programs on a host of the embedded cloud find its API."""


class Cluster:
    """Run commands as root on the nodes of the shared cluster, by name."""

    def __init__(self, cloud: EmbeddedCloud) -> None:
        self.cloud = cloud
        (master,) = cloud.instances("master")
        self.ids = {"deeplearning-master": master["InstanceId"]}
        eventually(lambda: self.is_whole("deeplearning-master"))
        self.ids |= {line.split()[0]: line.split()[2] for line in self.listed()}

    def shell(self, node: str, script: str, *words: str) -> str:
        """Run a shell program on a node; return its output."""
        return self.cloud.on(self.ids[node], "sh", "-ec", script, "sh", *words).stdout

    def listed(self, node: str = "deeplearning-master") -> list[str]:
        """Return the lines of the nodes file on a node."""
        return self.shell(node, f"cat {NODES}").splitlines()

    def is_whole(self, node: str) -> bool:
        """Return whether a node lists all three nodes and reports no invalid entry."""
        return [line.split()[0] for line in self.listed(node)] == [
            "deeplearning-master",
            "deeplearning-worker1",
            VICTIM,
        ]

    def plant(self, fact: int, text: str) -> None:
        """Overwrite one field of the victim's registry entry, by position, as root on a worker can."""
        written = self.shell(VICTIM, 'cat "$1"', f"{REGISTRY}/{VICTIM}").removesuffix("\n").split(",")
        written[fact] = text
        self.shell(VICTIM, 'printf "%s\\n" "$1" >"$2"', ",".join(written), f"{REGISTRY}/{VICTIM}")

    def is_injected(self) -> bool:
        """Return whether text from the victim was executed on any node or on the laptop."""
        tries = [self.shell(node, 'test -e "$1" && echo yes || true', INJECTED) for node in self.ids]
        return "yes\n" in tries or Path(INJECTED).exists() or (demo.ROOT / "INJECTED").exists()

    @contextlib.contextmanager
    def restored(self, planted: Sequence[str] = ()) -> Iterator[None]:
        """Restore the registry after a block and remove the planted entries."""
        kept = f"/mnt/efs/.cluster/kept-{VICTIM}"
        self.shell(VICTIM, f'cp "$1" {kept}; cp "$2" {kept}.pub', f"{REGISTRY}/{VICTIM}", SHARED_KEY)
        try:
            yield
        finally:
            for name in planted:
                self.shell(VICTIM, 'rm -rf "$1"', f"{REGISTRY}/{name}")
            back = f'cat {kept} >"$1"; cat {kept}.pub >"$2"; rm {kept} {kept}.pub'
            self.shell(VICTIM, back, f"{REGISTRY}/{VICTIM}", SHARED_KEY)
            eventually(lambda: all(self.is_whole(node) for node in self.ids))

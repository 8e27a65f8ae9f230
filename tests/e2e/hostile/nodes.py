"""The nodes of the shared cluster as their root, one of which writes what it likes into the registry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually
from tools import demo

REGISTRY = "/mnt/efs/.cluster/nodes"
NODES = "/opt/deeplearning/nodes"
VICTIM = "deeplearning-worker2"
IP, GPUS, HOST_KEY = 1, 5, 7
"""Places of facts in a node's entry."""
SHARED_KEY = "/mnt/efs/.cluster/master.pub"
INJECTED = "/tmp/injected-by-a-worker"
FIND_AWS = "set -a; . /etc/environment; set +a; "
"""What a login does, by which programs on a host of the embedded cloud find its API."""


class Cluster:
    """Reach the nodes of the shared cluster by name, as their root."""

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
        """Return whether a node lists all three, and has nothing to say against any."""
        return [line.split()[0] for line in self.listed(node)] == [
            "deeplearning-master",
            "deeplearning-worker1",
            VICTIM,
        ]

    def plant(self, fact: int, text: str) -> None:
        """Write a fact of the victim, by its place in the entry, as a worker's root can."""
        written = self.shell(VICTIM, 'cat "$1"', f"{REGISTRY}/{VICTIM}").removesuffix("\n").split(",")
        written[fact] = text
        self.shell(VICTIM, 'printf "%s\\n" "$1" >"$2"', ",".join(written), f"{REGISTRY}/{VICTIM}")

    def is_injected(self) -> bool:
        """Return whether text of the victim was executed on any node, or on the laptop."""
        tries = [self.shell(node, 'test -e "$1" && echo yes || true', INJECTED) for node in self.ids]
        return "yes\n" in tries or Path(INJECTED).exists() or (demo.ROOT / "INJECTED").exists()

    @contextlib.contextmanager
    def restored(self, planted: Sequence[str] = ()) -> Iterator[None]:
        """Put the registry back to what it was after a block, and take away the entries that it has planted."""
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

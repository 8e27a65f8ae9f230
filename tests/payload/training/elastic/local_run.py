"""An elastic run on this machine: its hosts are this one several times over, and a shell stands in for SSH."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agent.launch.elastic import offers
from agent.launch.elastic.offers import Offer
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from tests.agent.conftest import UNREACHABLE
from tests.factories import AGENT, PAYLOAD, make_node, make_spec
from tests.waiting import eventually

SSH: Final = f"""\
#!/bin/sh
shift 2
[ "$1" = {UNREACHABLE} ] && {{ echo "ssh: connect to host $1 port 22: Connection timed out"; exit 255; }}
[ -e "$HOME/cut-$1" ] && exec sleep 60
exec unshare --pid --fork --kill-child --mount-proc sh -c "$2"
"""
"""Each host has processes of its own, which alone it ends with a rank. Always called with `-l USER`. A host is cut off
where a file says so: then connections that exist stay, and new ones wait."""
ROOT: Final = Path(__file__).parents[4]
FLAGS: Final = ("--recipe", "digits", "--global-batch", "60", "--train-limit", "960", "--intra-op-threads", "1")


def hosts(count: int) -> tuple[Node, ...]:
    """Return so many hosts, all of them this machine."""
    return tuple(make_node(index, address="127.0.0.1") for index in range(1, count + 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalRun:
    """One elastic run below a directory."""

    efs: Path
    spec: RunSpec

    @classmethod
    def lay_out(cls, efs: Path, *flags: str, count: int = 3, program: str = "", **changes: Any) -> LocalRun:
        """Write a run of a recipe on so many hosts, or of a `program` of one's own, its source."""
        agent = efs / "payloads" / AGENT / "agent"
        shutil.copytree(ROOT / "agent", agent, ignore=shutil.ignore_patterns("__pycache__"))
        (agent / "bin" / "ssh").write_text(SSH)
        (efs / "payloads" / PAYLOAD).mkdir()
        (efs / "payloads" / PAYLOAD / "payload").symlink_to(ROOT / "payload")
        directory = efs / "runs" / "one"
        directory.mkdir(parents=True)
        command = ("-m", "payload.train", *FLAGS, *flags, "--run-dir", str(directory))
        if program:
            work = directory / "work"
            work.mkdir()
            (work / "train.py").write_text(program)
            command, changes = ("train.py",), {**changes, "payload": "", "program": "b" * 16, "placement": "none"}
        values = {"run_id": "one", "efs_mount": str(efs), "command": command, "hosts": hosts(count), "elastic": True}
        spec = make_spec(**{**values, "environment": (("TF_CPP_MIN_LOG_LEVEL", "2"),), **changes})
        (directory / "spec.json").write_text(spec.to_json())
        run = cls(efs=efs, spec=spec)
        run.offer(spec.hosts)
        return run

    @property
    def directory(self) -> Path:
        return Path(self.spec.run_directory)

    @property
    def folder(self) -> Path:
        return self.efs / offers.FOLDER / "one"

    def offer(self, nodes: tuple[Node, ...], *, numbers: tuple[int, ...] | None = None) -> None:
        """Offer these hosts, by default each once."""
        given = numbers or tuple(node.worker_index or 0 for node in nodes)
        each = [Offer(node=node, number=number) for node, number in zip(nodes, given, strict=True)]
        offers.write_offers(self.folder, each)

    @contextlib.contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        """Start the launcher, which is ended with the block."""
        launcher = subprocess.Popen(
            [sys.executable, "-m", "agent.launch.elastic.launcher", sys.executable, str(self.directory)],
            cwd=self.spec.agent_directory,
            env={"PATH": os.environ["PATH"], "HOME": str(self.efs), "HOROVOD_GLOO_TIMEOUT_SECONDS": "30"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield launcher
        finally:
            launcher.kill()
            for member in self.pids():
                self.kill(member)

    def pids(self) -> dict[int, int]:
        """Return the processes of the ranks, by the numbers with which they were started."""
        found, word = {}, self.spec.command[-1 if self.spec.program else 1].encode()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().split(b"\0")
                environment = (path / "environ").read_bytes().split(b"\0")
                if word in words and f"DEEPCDK_RUNS={self.spec.runs_root}".encode() in environment:
                    (member,) = [each for each in environment if each.startswith(b"DEEPCDK_MEMBER=")]
                    found[int(member.partition(b"=")[2])] = int(path.name)
        return found

    def kill(self, member: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal one rank."""
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(self.pids()[member], number)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of one name that the ranks have written."""
        try:
            lines = (self.directory / "metrics.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [event for line in lines if (event := json.loads(line))["event"] == name]

    def wait_for_epoch(self, epoch: int) -> None:
        """Wait until so many epochs are over."""
        eventually(lambda: len(self.events("epoch")) >= epoch)

    def reformed(self) -> list[dict[str, Any]]:
        """Return how the launcher has told that the ranks formed anew."""
        return [event for event in self.told() if "hosts" in event]

    def told(self) -> list[dict[str, Any]]:
        """Return what the launcher has told."""
        return [dict(each) for each in offers.read_told(self.folder, 0)]

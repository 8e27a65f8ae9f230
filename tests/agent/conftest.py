"""Shared by tests of process groups: a group on this machine, with a shell in place of SSH, and PyTorch."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from agent.spec.run import RunSpec
from tests.factories import AGENT, make_node, make_program_spec

PROJECT: Final = Path(__file__).resolve().parents[2]
TORCH: Final = "torch==2.13.0+cpu"
"""A version that no public index has: it is installed from a directory or not at all."""
UNREACHABLE: Final = "deeplearning-worker9"
SSH: Final = f"""\
#!/bin/sh
[ "$1" = -l ] && shift 2
[ "$1" = {UNREACHABLE} ] && {{ echo "ssh: connect to host $1 port 22: Connection timed out"; exit 255; }}
exec sh -c "$2"
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalGroup:
    """A shared file system on this machine for process groups."""

    efs: Path

    def lay_out(self, program: str, *words: str, slots: Sequence[int] = (1, 1), **changes: Any) -> RunSpec:
        """Write the run of a program. Every slot is on its own host, and all hosts are this machine."""
        nodes = tuple(make_node(n, address="127.0.0.1", slots=count) for n, count in enumerate(slots, start=1))
        values = {"hosts": nodes, "efs_mount": str(self.efs), "rank_launcher": "plain", "run_id": "one"}
        spec = make_program_spec(**{**values, "command": ("train.py", *words), **changes})
        work = Path(spec.working_directory)
        work.mkdir(parents=True)
        (work / "train.py").write_text(program)
        (work.parent / "spec.json").write_text(spec.to_json())
        return spec

    def start(self, spec: RunSpec, python: str = sys.executable, module: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start the launcher of a run."""
        return subprocess.Popen(
            [sys.executable, "-m", "agent.launch.ssh_launcher", python, spec.run_directory, *module],
            cwd=spec.agent_directory,
            env={"PATH": os.environ["PATH"], "HOME": str(self.efs)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, spec: RunSpec, python: str = sys.executable, module: Sequence[str] = ()) -> tuple[int, str]:
        """Run the launcher to its end; return its status and the log."""
        with self.start(spec, python, module) as launcher:
            output, _ = launcher.communicate(timeout=300)
        return launcher.returncode, output


@pytest.fixture
def group(tmp_path: Path) -> LocalGroup:
    agent = tmp_path / "payloads" / AGENT / "agent"
    shutil.copytree(PROJECT / "agent", agent, ignore=shutil.ignore_patterns("__pycache__"))
    (agent / "bin" / "ssh").write_text(SSH)
    return LocalGroup(efs=tmp_path)


@pytest.fixture
def meeting_port() -> Iterator[None]:
    """Reserve the port at which ranks meet, because several tests run concurrently on this machine."""
    with (Path(tempfile.gettempdir()) / "deepcdk-meeting-port.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def torch_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Create an environment with PyTorch, once for all pytest processes; skip if pip finds no build of it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "torch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _make_environment(shared / "torch")
    if not (shared / "torch" / "complete").exists():
        pytest.skip(f"pip finds no {TORCH} for this Python: tests with PyTorch are left out")
    return str(shared / "torch" / "bin" / "python")


def _make_environment(place: Path) -> None:
    if place.exists():
        return
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "pip"), "install", "--quiet", "--no-input", "--retries", "1", "--only-binary", ":all:"]
    if subprocess.run([*pip, TORCH, "numpy"], capture_output=True, check=False, timeout=600).returncode == 0:
        (place / "complete").touch()

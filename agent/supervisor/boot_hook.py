"""The script that a booting master runs. It starts a scheduler, which restarts lost runs and starts queued ones."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.remote.ssh import OWN_TREE
from agent.runs.node_claims import Runs

HOOK: Final = ".deepcdk/at-boot"
"""Path in the login user's home, on the master's own disk. Ranks cannot change the script there."""


def scheduler_command(runs: Runs) -> list[str]:
    """Build the command that runs the scheduler. Its working directory must be the agent's tree."""
    return [sys.executable, "-m", "agent.supervisor.cli", "--root", str(runs.root), "schedule"]


def write_boot_hook(runs: Runs, tree: Path = OWN_TREE) -> None:
    """Write the script that a booting master runs, unless it is up to date. Raises OSError.

    The script starts a scheduler from the agent in `tree`, which is on the master's own disk.
    """
    path = Path.home() / HOOK
    text = f"#!/bin/sh\ncd {shlex.quote(str(tree))} && exec {shlex.join(scheduler_command(runs))}\n"
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(encoding="utf-8") == text:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text, mode=0o755)


def hooked_tree() -> Path:
    """Return the directory of the agent that the boot script starts.

    The latest submission of a run wrote the script (`write_boot_hook`). Return this process's own tree if the script is
    missing or invalid, or its tree does not exist.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        change, directory = shlex.split((Path.home() / HOOK).read_text(encoding="utf-8").splitlines()[1])[:2]
        if change == "cd" and (Path(directory) / "agent").is_dir():
            return Path(directory)
    return OWN_TREE

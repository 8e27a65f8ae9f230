"""Keep a run's secrets on a node while it needs them: one file a run, which only the login user may read.

    python -m payload.vault keep RUN_ID      # a JSON object of names and values on standard input
    python -m payload.vault drop RUN_ID

They never lie on the shared file system, in the run's record or on a command line. The file lies in the login user's
home, on the node's own encrypted disk, because that is still there after a reboot; it goes when the run ends.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from payload.launch import NODE_PYTHON, Launch, Node

TIMEOUT_S: Final = 60.0


class VaultError(RuntimeError):
    """Report secrets that are not where a rank looks for them."""


def vault(home: Path) -> Path:
    """Return the directory of all secrets of this node."""
    return home / ".cache" / "deepcdk" / "secrets"


def keep(directory: Path, run_id: str, text: str) -> None:
    """Write a run's secrets, readable by this user alone from the first byte on."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    partial = directory / f".{run_id}.{os.getpid()}"
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    partial.replace(directory / run_id)


def read(directory: Path, run_id: str, names: Sequence[str]) -> dict[str, str]:
    """Return a run's secrets. Raises VaultError, which tells names and no values, where one is missing."""
    if not names:
        return {}
    try:
        found = json.loads((directory / run_id).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    if absent := [name for name in names if name not in found]:
        raise VaultError(f"the secrets {', '.join(absent)} are not on this node; give them again with --secret")
    return {name: str(found[name]) for name in names}


def drop(directory: Path, run_id: str) -> None:
    """Remove a run's secrets."""
    (directory / run_id).unlink(missing_ok=True)


def sweep(directory: Path, is_over: Callable[[str], bool]) -> list[str]:
    """Remove the secrets of runs that are over, as a crash leaves them; return the ids of these runs."""
    gone = []
    with contextlib.suppress(FileNotFoundError):
        gone = [path.name for path in directory.iterdir() if is_over(path.name)]
    for run_id in gone:
        drop(directory, run_id)
    return gone


def command(verb: str, run_id: str) -> list[str]:
    """Build the command that does on a node what the function of that name does here."""
    return [NODE_PYTHON, "-m", "payload.vault", verb, run_id]


def share(
    directory: Path, launch: Launch, command_for: Callable[[Node, Sequence[str]], Sequence[str]]
) -> dict[str, str]:
    """Hand the run's secrets from this master to all its hosts at once, each over the standard input of its command.

    Return what went wrong, by node; no value is in it.
    """
    if not launch.secrets:
        return {}
    try:
        text = json.dumps(read(directory, launch.run_id, launch.secrets))
    except VaultError as error:
        return {"this master": str(error)}
    keep_there = command("keep", launch.run_id)

    def one(host: Node) -> str:
        there = command_for(host, keep_there)
        try:
            done = subprocess.run(there, input=text.encode(), capture_output=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return type(error).__name__
        return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()[-500:] or "no word"

    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(64, len(launch.hosts)))) as pool:
        answers = list(pool.map(one, launch.hosts))
    return {
        host.name: f"its secrets were not taken: {answer}"
        for host, answer in zip(launch.hosts, answers, strict=True)
        if answer
    }


def main(argv: Sequence[str]) -> int:
    """Run the command line."""
    verb, run_id = argv
    directory = vault(Path.home())
    if verb == "keep":
        keep(directory, run_id, sys.stdin.read())
    else:
        drop(directory, run_id)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

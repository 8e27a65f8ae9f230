"""Store a run's secrets on a node while the run needs them: one file per run, readable only by its user.

    python -m agent.remote.secret_files keep RUN_ID  # on the master, before the run; a JSON object on standard input
    python -m agent.remote.secret_files take RUN_ID  # on a node of the run, as the user for ranks; the same input
    python -m agent.remote.secret_files drop RUN_ID  # on either

Secrets are never on the shared file system, in the run's record or on a command line. On the master the file is in the
home of the login user, on a node in the home of the user for ranks. It is on the machine's own encrypted disk, so that
it survives a reboot. It is removed when the run ends.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.errors import describe
from agent.files.atomic_write import describe_full_disk, write_atomically
from agent.remote import rank_user
from agent.spec.laptop_requests import secrets_command
from agent.spec.nodes import Node
from agent.spec.run import RunSpec

if TYPE_CHECKING:
    from agent.runs.node_claims import Runs

TAKEN: Final = ".cache/deepcdk/taken"
"""In the home of ranks. A node takes part in one run at a time: files from before that run are left from a crash."""
TIMEOUT_S: Final = 60.0
UNCLAIMED_S: Final = 3600.0
"""How long secrets may be on the master before their run exists. The laptop sends the secrets first, then the run."""


class SecretsError(RuntimeError):
    """Report secrets of a run that are missing on this node."""


def master_directory(home: Path) -> Path:
    """Return the directory of secrets on the master, also of queued runs, below the login user's `home`."""
    return home / ".cache" / "deepcdk" / "secrets"


def node_directory(home: Path) -> Path:
    """Return the directory of secrets on a node, below the `home` of ranks, for the run that the node takes part in."""
    return home / TAKEN


def write(directory: Path, run_id: str, text: str) -> None:
    """Write a run's secrets, the JSON object `text`, to `directory`. Only this user can read the file from the start.

    Raises OSError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    write_atomically(directory / run_id, text, mode=0o600)


def read(directory: Path, run_id: str, names: Sequence[str]) -> dict[str, str]:
    """Return the values of the secrets `names` of a run, by name; {} without names.

    Raises SecretsError with the names of missing secrets, without values. If the file cannot be read, all are missing.
    """
    if not names:
        return {}
    try:
        found = json.loads((directory / run_id).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    if absent := [name for name in names if name not in found]:
        listed = ", ".join(absent)
        raise SecretsError(
            f"the secrets {listed} are not on this node; pass them again with --secret to `fab resume {run_id}`"
        )
    return {name: str(found[name]) for name in names}


def remove(directory: Path, run_id: str) -> None:
    """Remove a run's secrets, if there are any."""
    (directory / run_id).unlink(missing_ok=True)


def remove_stale(directory: Path, runs: Runs) -> list[str]:
    """Remove the secrets of runs that have ended, or that do not exist UNCLAIMED_S after the secrets were sent.

    Return the IDs of these runs.
    """
    stale = []
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            is_late = time.time() - path.stat().st_mtime > UNCLAIMED_S
            if runs.is_over(path.name) or (is_late and not runs[path.name].path.exists()):
                stale.append(path.name)
    for run_id in stale:
        remove(directory, run_id)
    return stale


def distribute(
    directory: Path, spec: RunSpec, command_for: Callable[[Node, Sequence[str]], Sequence[str]]
) -> dict[str, str]:
    """Send the run's secrets in `directory` from this master to all its hosts concurrently, and wait for them.

    `command_for` builds the command that runs words on a host; the secrets are its standard input. Return errors by the
    host's name, without any secret; {} if all hosts have the secrets. If the master lacks a secret, nothing is sent,
    and the error has the name "this master".
    """
    if not spec.secrets:
        return {}
    try:
        text = json.dumps(read(directory, spec.run_id, spec.secrets))
    except SecretsError as error:
        return {"this master": str(error)}
    take = secrets_command("take", spec.run_id)

    def one(host: Node) -> str:
        there = command_for(host, take)
        try:
            done = subprocess.run(there, input=text.encode(), capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"no answer within {TIMEOUT_S:g} s"
        except OSError as error:
            return describe(error)
        return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()[-500:] or "no output"

    import concurrent.futures  # Not at the top: ranks import this module too.

    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(64, len(spec.hosts)))) as pool:
        answers = list(pool.map(one, spec.hosts))
    return {
        host.name: f"cannot store the secrets: {answer}"
        for host, answer in zip(spec.hosts, answers, strict=True)
        if answer
    }


def main(argv: Sequence[str]) -> int:
    """Store the secrets on standard input for the given runs, or remove them; return the exit status.

    `keep` stores them on the master, `take` on a node, and `drop` removes both. The status is 1 after a system error,
    which is printed, and 2 for any other word.
    """
    verb, *run_ids = argv
    if verb not in ("keep", "take", "drop"):
        print(f"{verb}: must be keep, take or drop", file=sys.stderr)
        return 2
    home, text = rank_user.home(), "" if verb == "drop" else sys.stdin.read()
    try:
        for run_id in run_ids:
            if verb == "drop":
                remove(master_directory(home), run_id)
                remove(node_directory(home), run_id)
            else:
                write(master_directory(home) if verb == "keep" else node_directory(home), run_id, text)
    except OSError as error:
        print(describe_full_disk(home, str(error)) or describe(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

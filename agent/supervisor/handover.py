"""Hand over the agent and the database of runs from a master to its replacement.

    python3 -m agent.supervisor.handover RUNS_ROOT    # take over the data unpacked in this directory, at boot

A master runs only programs on its own disk, because root on any worker can write to the shared file system. That disk
is lost with the master. So while runs are queued or watched, the scheduler packs the agent and a backup of the database
into an archive on the shared file system. It stores the archive's SHA-256 in a parameter of Systems Manager. In the
cluster, only the master's role can read or write this parameter. The next master accepts only the archive with this
digest (`stacks/scripts/node_registry_master.sh`). Its scheduler then finds the runs lost and restarts them.

Secrets of runs are not handed over, because they are never stored on the shared file system. A run with secrets fails
with a message.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import describe, malformed
from agent.files.atomic_write import new_directory
from agent.hardware.machine import NODE_CONF, read_node_conf
from agent.runs import database, run_queue, stored_state
from agent.runs.node_claims import Claim, Runs
from agent.spec.nodes import MASTERS_TREES
from agent.spec.run import RunSpec
from agent.staging.aws_cli import aws_command, cli_environment
from agent.supervisor import current_master
from agent.supervisor.boot_hook import HOOK, hooked_tree, write_boot_hook

FOLDER: Final = ".handover"
"""Folder beside the runs. It contains archives named by their digests; the parameter states the valid digest."""
NOTHING: Final = "none"
"""Value of the parameter if there is nothing to hand over, because no run would continue."""
CONTENTS: Final = "handover.json"
DATABASE: Final = "runs.sqlite"
AGENT: Final = "agent"
RETRY_S: Final = 60.0
AGAIN_S: Final = 300.0
"""Interval for writing everything again: a stack update may reset the parameter, and a worker may remove the file."""
_NAME: Final = re.compile(r"[0-9a-f]{64}\.tar")
_TREE: Final = re.compile("[0-9a-f]{16}")


class Handover:
    """Keep the archive for the next master, and the parameter with its digest, up to date, without waiting for AWS."""

    def __init__(
        self,
        runs: Runs,
        log: Callable[[str], None],
        *,
        conf: Path = NODE_CONF,
        tree: Callable[[], Path] = hooked_tree,
        start: Callable[[Sequence[str]], subprocess.Popen[bytes]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        facts = read_node_conf(conf)
        self.parameter, self._region = facts.get("handover_parameter", ""), facts.get("region", "")
        self._runs, self._log, self._tree = runs, log, tree
        self._start, self._clock = start or _start, clock
        self._call: subprocess.Popen[bytes] | None = None
        self._shared: tuple[Path, list[str], bytes] | None = None
        """The last data handed over, or in progress: the agent's tree, the ids of the runs, and the database."""
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._backup = b""
        self._digest = ""
        self._next = 0.0
        """When to write the same data again, by `clock`."""
        self._failure = ""

    @property
    def is_settled(self) -> bool:
        """Return whether there is nothing to wait for: AWS has stored the last digest, or this has failed.

        Also true if the cluster has no parameter for the digest.
        """
        return not self.parameter or (self._call is None and self._shared is not None)

    def keep_up(self) -> None:
        """Hand over changes since the last call, without waiting for AWS.

        Do nothing while the previous call of AWS is running, or if the cluster has no parameter for the handover. The
        data are the agent and a backup of the database. If no runs are queued or watched, only the parameter is set, to
        NOTHING. All of this is written again after AGAIN_S without changes. A failure is logged once, and retried after
        RETRY_S.
        """
        if not self.parameter:
            return
        try:
            if self._call and self._call.poll() is None:
                return
            if self._call:
                self._finish(self._call)
            ids = sorted({*run_queue.ids(), *self._runs.watched()})
            if ids and (stamp := database.stamp()) != self._stamp:
                self._backup, self._stamp = database.backup(), stamp
            wanted = (self._tree(), ids, self._backup if ids else b"")
            if wanted != self._shared or self._clock() >= self._next:
                self._share(wanted)
        except (OSError, ValueError) as error:
            self._fail(describe(error))

    def _share(self, wanted: tuple[Path, list[str], bytes]) -> None:
        tree, ids, backup = wanted
        self._shared, self._next = wanted, self._clock() + AGAIN_S
        self._digest = NOTHING
        if ids:
            archive = pack(tree, ids, backup)
            self._digest = hashlib.sha256(archive).hexdigest()
            with _folder(self._runs.root / FOLDER) as folder:
                _write(folder, f"{self._digest}.tar", archive)
        words = ("--name", self.parameter, "--type", "String", "--value", self._digest, "--overwrite")
        self._call = self._start(aws_command("ssm", "put-parameter", *words, region=self._region, in_background=True))

    def _finish(self, call: subprocess.Popen[bytes]) -> None:
        said, _ = call.communicate()
        self._call = None
        if call.returncode:
            lines = said.decode(errors="replace").strip().splitlines()
            self._fail(lines[-1] if lines else f"status {call.returncode}")
            return
        self._failure = ""
        with contextlib.suppress(OSError), _folder(self._runs.root / FOLDER) as folder:
            with os.scandir(folder) as entries:
                others = [each.name for each in entries if _NAME.fullmatch(each.name)]
            for name in others:
                if name != f"{self._digest}.tar":
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=folder)

    def _fail(self, why: str) -> None:
        self._next = self._clock() + RETRY_S
        self._shared = self._shared or (Path(), [], b"")
        if why != self._failure:
            self._failure = why
            self._log(f"a master that replaces this one could not continue the runs: {why}; retrying every minute")


def take_over(left: Path, runs: Runs, home: Path) -> Path:
    """Install the agent, database and boot hook from the archive unpacked in `left`. Return the agent's tree.

    `home` is the login user's home. This master becomes the current master of `runs`, and claims nodes for live runs
    without a claim. An agent, data or hook that it already has, because a laptop was faster, is kept. Raises OSError,
    and ValueError or KeyError if the archive is malformed.
    """
    contents: Any = json.loads((left / CONTENTS).read_bytes())
    tree = str(contents["tree"])
    if not _TREE.fullmatch(tree):
        raise ValueError(f"{left / CONTENTS}: {tree!r} is not the name of an agent's tree")
    target = home / MASTERS_TREES / tree
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_dir():
        with new_directory(target) as partial:
            shutil.copytree(left / AGENT, partial / AGENT)
            os.sync()  # An existing tree counts as complete, so a crash must not leave empty files in it.
    current_master.take(runs.root)  # First, so that the supervisors of the previous master write no state after this.
    database.restore(left / DATABASE)
    stored_state.import_copies(runs.root)
    _claim_begun(runs)
    if not (home / HOOK).exists():
        write_boot_hook(runs, target)
    return target


def _claim_begun(runs: Runs) -> None:
    """Claim nodes in the restored database for live runs that have no claim, so that the scheduler also restarts them.

    These runs started after the backup was made. Claims of other runs for the same nodes are removed.
    """
    with database.transaction() as changing:
        claimed = {claim.run_id for claim in runs.claims()}
        for run_id, text in database.rows("SELECT run_id, spec FROM specs JOIN states USING (run_id)"):
            if run_id not in claimed and runs[run_id].stored_state().is_live:
                hosts = RunSpec.from_json(text).hosts
                for host in hosts:  # In the backup, a run that has ended since may have claimed it.
                    values = (host.name, host.instance_id)
                    changing.execute("DELETE FROM claimed_nodes WHERE name = ? OR instance_id = ?", values)
                Claim.on(run_id, hosts or None).store(changing)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    """Open the archives' directory for a block, and create it if it is missing. Yields a file descriptor.

    Raises OSError if it is a link: root on any worker could create a link to a directory on the master's disk.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o755)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(folder: int, name: str, data: bytes) -> None:
    """Write a file into an open directory atomically, and replace any file or link with its name."""
    partial = f".{name}.partial"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)


def pack(tree: Path, ids: Sequence[str], backup: bytes) -> bytes:
    """Return the archive with the agent in `tree`, the ids of the runs, and the backup of the database. Raises OSError.

    Links and .pyc files are left out. The same content results in the same bytes.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted((tree / AGENT).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
                mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                _add(archive, path.relative_to(tree).as_posix(), path.read_bytes(), mode)
        contents = json.dumps({"tree": tree.name, "runs": ids}, sort_keys=True)
        _add(archive, CONTENTS, contents.encode(), 0o600)
        _add(archive, DATABASE, backup, 0o600)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=cli_environment()
    )


def main(argv: Sequence[str]) -> int:
    """Take over the previous master's agent and database from the archive unpacked in the current directory.

    `argv` contains the directory of all runs. Return the exit status: 1 after an error, which is printed, otherwise 0.
    """
    try:
        take_over(Path.cwd(), Runs(root=Path(argv[0])), Path.home())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"cannot install the data of the previous master: {malformed(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What a master leaves to the one that replaces it: this agent, and the digests of the specs that it has accepted.

    python3 -m agent.supervisor.handover RUNS_ROOT    # take over what is unpacked here; a booting master calls it

A master carries out what lies on its own disk, since root on any worker can write on the shared file system; and that
disk goes with it. So the scheduler, while runs wait or are to be watched, packs the agent that it runs, and the digests
of their specs, into an archive among the runs, named by its SHA-256, and writes that into a parameter of Systems
Manager that no role but the master's may write or read. The next master takes from the shared file system what has this
digest, and nothing else (`stacks/scripts/master.sh`); its scheduler then finds the runs lost, and takes them up.

Not left: the secrets of runs, which lie on no shared file system. A run with secrets fails, and says so.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import new_directory, write_atomically
from agent.hardware.node_conf import NODE_CONF, read_node_conf
from agent.remote.command import OWN_TREE
from agent.runs import accepted_spec
from agent.runs.run_queue import RunQueue
from agent.runs.store import Runs
from agent.spec.nodes import MASTERS_TREES
from agent.spec.states import is_run_id
from agent.staging.aws_cli import aws_command, cli_environment
from agent.supervisor.boot_hook import write_boot_hook

FOLDER: Final = ".handover"
"""Among the runs: archives by their digests, of which the parameter names the one that counts."""
NOTHING: Final = "none"
"""The parameter's value where nothing is left: no run would go on."""
CONTENTS: Final = "handover.json"
AGENT: Final = "agent"
RETRY_S: Final = 60.0


class Handover:
    """Keep up to date what this master leaves, without waiting for AWS."""

    def __init__(
        self,
        runs: Runs,
        log: Callable[[str], None],
        *,
        conf: Path = NODE_CONF,
        tree: Path = OWN_TREE,
        start: Callable[[Sequence[str]], subprocess.Popen[bytes]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        facts = read_node_conf(conf)
        self.parameter, self._region = facts.get("handover_parameter", ""), facts.get("region", "")
        self._runs, self._log, self._tree = runs, log, tree
        self._start, self._clock = start or _start, clock
        self._agent: bytes | None = None
        self._call: subprocess.Popen[bytes] | None = None
        self._shared: Mapping[str, Sequence[str]] | None = None
        """The digests of specs that the archive has of which AWS was told last, or is being told."""
        self._digest = ""
        self._retry = 0.0
        """When AWS is told again, after a call that failed; 0 after one that did not."""
        self._failure = ""

    @property
    def is_settled(self) -> bool:
        """Return whether AWS has been told, or has refused it: there is nothing to wait for."""
        return not self.parameter or (self._call is None and self._shared is not None)

    def keep_up(self) -> None:
        """Share what is new since the last call, and look after AWS's answer. A failure is logged, and tried again."""
        if not self.parameter:
            return  # A node of an earlier version, or none.
        if self._call and self._call.poll() is None:
            return
        if self._call:
            self._finish(self._call)
        wanted = self._specs()
        if wanted == self._shared and (not self._retry or self._clock() < self._retry):
            return
        try:
            self._share(wanted)
        except OSError as error:
            self._fail(wanted, str(error))

    def _specs(self) -> dict[str, list[str]]:
        """Return the digests of the accepted specs of all runs that wait or hold nodes."""
        held = [claim.run_id for claim in self._runs.claims() if claim.run_id and not claim.task]
        found = {run_id: accepted_spec.digests(run_id) for run_id in (*RunQueue(runs=self._runs).ids(), *held)}
        return {run_id: digests for run_id, digests in sorted(found.items()) if digests}

    def _share(self, wanted: dict[str, list[str]]) -> None:
        self._digest = NOTHING
        if wanted:
            archive = self._pack(wanted)
            self._digest = hashlib.sha256(archive).hexdigest()
            folder = self._runs.root / FOLDER
            folder.mkdir(mode=0o755, exist_ok=True)
            path = folder / f"{self._digest}.tar"
            if not path.exists():
                write_atomically(path, archive)
        words = ("--name", self.parameter, "--type", "String", "--value", self._digest, "--overwrite")
        self._call = self._start(aws_command("ssm", "put-parameter", *words, region=self._region, in_background=True))
        self._shared = wanted

    def _pack(self, specs: Mapping[str, Sequence[str]]) -> bytes:
        """Return the archive of this agent and these digests: the same bytes for the same content."""
        if self._agent is None:
            self._agent = _packed_agent(self._tree)
        buffer = io.BytesIO(self._agent)
        contents = json.dumps({"tree": self._tree.name, "specs": specs}, sort_keys=True)
        with tarfile.open(fileobj=buffer, mode="a:") as archive:
            _add(archive, CONTENTS, contents.encode(), 0o600)
        return buffer.getvalue()

    def _finish(self, call: subprocess.Popen[bytes]) -> None:
        said, _ = call.communicate()
        self._call, self._retry = None, 0.0
        if call.returncode:
            lines = said.decode(errors="replace").strip().splitlines()
            self._fail(self._shared or {}, lines[-1] if lines else f"status {call.returncode}")
            return
        self._failure = ""
        for path in (self._runs.root / FOLDER).glob("*.tar"):
            if path.stem != self._digest:
                path.unlink(missing_ok=True)

    def _fail(self, wanted: Mapping[str, Sequence[str]], why: str) -> None:
        self._shared, self._retry = wanted, self._clock() + RETRY_S
        if why != self._failure:
            self._failure = why
            self._log(f"a master that replaces this one would not go on with the runs: {why}; tried again each minute")


def take_over(left: Path, runs: Runs, home: Path) -> Path:
    """Make what a master has left, unpacked in `left`, this one's: agent, digests, boot hook. Return the agent's tree.

    What this master has by then, because a laptop was faster, stays as it is. Raises OSError, and ValueError for what
    no scheduler has written.
    """
    contents: Any = json.loads((left / CONTENTS).read_bytes())
    tree, specs = str(contents["tree"]), contents["specs"]
    if not re.fullmatch("[0-9a-f]{16}", tree) or not all(is_run_id(run_id) for run_id in specs):
        raise ValueError(f"{left / CONTENTS} is not a master's")
    target = home / MASTERS_TREES / tree
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_dir():
        with new_directory(target) as partial:
            shutil.copytree(left / AGENT, partial / AGENT)
    for run_id, digests in specs.items():
        accepted_spec.take_over(run_id, digests)
    write_boot_hook(runs, target)
    return target


def _packed_agent(tree: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted((tree / AGENT).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
                mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                _add(archive, path.relative_to(tree).as_posix(), path.read_bytes(), mode)
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
    """Take over what lies in the present directory; return the exit status."""
    try:
        take_over(Path.cwd(), Runs(root=Path(argv[0])), Path.home())
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

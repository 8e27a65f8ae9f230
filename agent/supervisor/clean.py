"""Find and remove unused directories: trees and wheels on the shared file system, environments and data on a node.

    python3 -m agent.supervisor.clean shared MOUNT [PATH...]    # on the master
    python3 -m agent.supervisor.clean node [ADDRESS:PATH...]         # the login user's environments on this node
    python3 -m agent.supervisor.clean data ROOT [ADDRESS:PATH...]    # staged data on this node, as the user for ranks

Without paths, each command prints the directories that it finds, as JSON. With paths, it removes those of them that are
still unused. A node ignores paths with the address of another node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from agent.environment.virtual_environment import DEFAULT_ROOT, Installer, used_lock
from agent.errors import describe
from agent.files.atomic_write import write_atomically
from agent.files.build_once import is_complete
from agent.files.file_lock import AlreadyLockedError, file_lock
from agent.files.safe_read import count_files, names_in, read_regular
from agent.hardware.machine import own_addresses, this_node_kind
from agent.remote.ssh import OWN_TREE
from agent.runs import database
from agent.runs.node_claims import Runs
from agent.runs.run_directory import COURSE_FILE
from agent.spec.launchers import HOROVOD
from agent.spec.node_kinds import runtime_kind
from agent.spec.nodes import MASTERS_TREES
from agent.spec.run_id import is_run_id
from agent.staging.errors import DatasetError
from agent.staging.manifest import SUFFIX, ManifestError
from agent.staging.staged_dataset import StagedDataset
from agent.supervisor.boot_hook import hooked_tree

CACHE: Final = ".cache/deepcdk"
"""Path in the login user's home."""
RECENT_S: Final = 3600.0
"""Age in seconds below which an incomplete directory counts as used, because a process may be writing it."""
AGENT_S: Final = 24 * 3600.0
"""Age in seconds below which an agent counts as used: a task on another laptop may run it without a run."""
_NAME: Final = re.compile("[0-9a-f]{16}")
_NAMES: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
_DATA: Final = re.compile(rb"/data/([A-Za-z0-9][A-Za-z0-9._-]*)")
_INTERRUPTED: Final = re.compile(r"[0-9a-f]{16}\.partial-[0-9]+|\.removed-.*|[0-9a-f]{16}\.tmp")
_REMOVED: Final = ".removed-"
_CMDLINE_BYTES: Final = 1 << 20
_OP: Final = "custom_op"
"""Name of a folder that only the recipes' wheels contain."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """A directory that `fab clean` may remove."""

    kind: str
    path: str
    size: int
    """Bytes."""
    used: bool
    """Whether a run, a process or the next run needs it."""


class Sizes:
    """Measure directories. Sizes of complete directories are stored in a file, because their content never changes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError):
            known = json.loads(read_regular(file))
            self._known = {str(key): value for key, value in known.items() if type(value) is int}
        self._found: dict[str, int] = {}
        self._changing: dict[str, int] = {}

    def of(self, path: Path, *, final: bool) -> int:
        """Return the total bytes of the files in a directory, without links. A directory is measured only once.

        `final`: the directory is complete. Its content no longer changes, so a size that is stored in the file is used.
        """
        sizes, name = self._found if final else self._changing, str(path)
        if name not in sizes:
            known = self._known.get(name) if final else None
            sizes[name] = count_files(path)[1] if known is None else known
        return sizes[name]

    def store(self) -> None:
        """Write the sizes of the complete directories that `of` measured, and drop others. Errors are ignored."""
        if self._found != self._known:
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._file, json.dumps(self._found))


def names_in_processes(proc: Path = Path("/proc")) -> frozenset[str]:
    """Return the names (16 hex digits) of trees and environments in command lines of other local processes."""
    found: set[bytes] = set()
    for process in names_in(proc):
        if process.isdecimal() and int(process) != os.getpid():
            with contextlib.suppress(OSError), (proc / process / "cmdline").open("rb") as file:
                found.update(_NAMES.findall(file.read(_CMDLINE_BYTES)))
    return frozenset(name.decode() for name in found)


def needed(runs: Runs) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of trees and environments, and of data sets, that runs on the shared file system refer to.

    Runs that have ended count too, because a user may resume them. Raises OSError if a spec cannot be read, because
    nothing may be removed then.
    """
    names, data = set(), set()
    # A run whose state is missing in the database, for example because its file is damaged, keeps its trees too.
    stored = (entry.parent.name for entry in runs.root.glob("[!.]*/state.json") if is_run_id(entry.parent.name))
    for run_id in {*runs.ids(), *stored}:
        try:
            spec = read_regular(runs[run_id].spec)
        except FileNotFoundError:  # `fab rm` removed the run a moment ago.
            if runs[run_id].path.exists():
                raise
            continue
        course = b""
        with contextlib.suppress(OSError):  # The file does not exist before the nodes are prepared.
            course = read_regular(runs[run_id].path / COURSE_FILE)
        names.update(_NAMES.findall(spec + b" " + course))
        data.update(_DATA.findall(spec))
    return frozenset(map(bytes.decode, names)), frozenset(map(bytes.decode, data))


def shared_items(mount: Path, home: Path, sizes: Sizes, names: frozenset[str]) -> Iterator[Item]:
    """Yield the trees and wheels on the shared file system, the agents on the master, and interrupted uploads of these.

    `mount` is where the shared file system is mounted, and `home` the login user's home. `names` are the names (16 hex
    digits) of trees and wheels that runs or processes use. Some other items count as used too: this agent and the boot
    hook's, agents that are younger than AGENT_S, incomplete items that are younger than RECENT_S, the newest wheels for
    recipes, and wheels of uv.
    """
    payloads, now = mount / "payloads", time.time()
    names |= {OWN_TREE.name, hooked_tree().name}

    def age(path: Path) -> float:
        with contextlib.suppress(OSError):
            return now - path.lstat().st_mtime
        return 0.0

    for folder in (payloads, home / MASTERS_TREES):
        for name in sorted(names_in(folder)):
            path = folder / name
            if _NAME.fullmatch(name):
                kind = next((each for each in ("agent", "payload", "program") if (path / each).is_dir()), "tree")
                used = name in names or (kind == "agent" and age(path) < AGENT_S)
                yield Item(kind=kind, path=str(path), size=sizes.of(path, final=True), used=used)
            elif _INTERRUPTED.fullmatch(name):
                size = sizes.of(path, final=False)
                yield Item(kind="interrupted", path=str(path), size=size, used=age(path) < RECENT_S)
    wheels = [payloads / ".wheelhouse" / name for name in sorted(names_in(payloads / ".wheelhouse"))]
    wheels = [path for path in wheels if path.is_dir() and not path.is_symlink()]
    newest = min((path for path in wheels if (path / _OP).is_dir()), key=age, default=None)
    for path in wheels:
        done = is_complete(path)
        used = path.name in names or path == newest or next(path.glob("uv-*.whl"), None) is not None
        used |= not done and age(path) < RECENT_S
        yield Item(kind="wheels", path=str(path), size=sizes.of(path, final=done), used=used)


def node_items(home: Path, sizes: Sizes, roots: Sequence[Path] = ()) -> Iterator[Item]:
    """Yield this node's environments, Horovod builds and leftovers of interrupted builds or removals.

    An environment or build is used if a process or the next recipe needs it. A removed build costs little time, because
    the wheels on the shared file system contain one too. `roots` are the folders to search. By default, these are all
    folders of environments and builds; the runtimes' folder is skipped if this node's kind is unknown. Folders that
    this user cannot write to are skipped.
    """
    # Import them here: they take a third of this program's start, and `fab status` runs only the command `shared`.
    from agent.environment import runtime
    from agent.environment.master_environment import MasterEnvironment

    names = names_in_processes()
    try:
        kind = runtime_kind({"this node": this_node_kind()})
        names |= {runtime.runtime_for(runtime.settings_for(kind)).fingerprint, MasterEnvironment().fingerprint}
        names |= {Installer(root=DEFAULT_ROOT).fingerprint}
        made_here: tuple[Path, ...] = (DEFAULT_ROOT,)
    except (ValueError, RuntimeError, OSError):  # It is unknown which runtime this node needs, so all of them stay.
        made_here = ()
    kept = [home / CACHE / folder for folder in ("environments", "layers", HOROVOD)]
    for root in roots or (*made_here, *kept):
        for name in sorted(names_in(root)) if os.access(root, os.W_OK) else ():
            path = root / name
            if _NAME.fullmatch(name) and path.is_dir():
                size = sizes.of(path, final=is_complete(path))
                what = "Horovod build" if root.name == HOROVOD else "environment"
                yield Item(kind=what, path=str(path), size=size, used=name in names)
            elif _INTERRUPTED.fullmatch(name) and not (root / f"{name.removesuffix('.tmp')}.lock").exists():
                yield Item(kind="interrupted", path=str(path), size=sizes.of(path, final=False), used=False)


def data_items(root: Path) -> Iterator[Item]:
    """Yield the data sets staged in the folder `root` of this node, complete or not. None of them counts as used."""
    names = {name.removesuffix(".new").removesuffix(SUFFIX) for name in names_in(root) if SUFFIX in name}
    for name in sorted(names):
        with contextlib.suppress(ValueError):
            staged = StagedDataset(root=root, name=name)
            yield Item(kind="data", path=str(staged.directory), size=count_files(staged.directory)[1], used=False)


def set_aside(path: Path, locks: Iterable[Path] = ()) -> Path | None:
    """Rename a directory; return its new path, which the caller then removes.

    Return None if the directory is gone, or another process holds one of the lock files `locks`. They are held during
    the renaming. A process that starts meanwhile finds the complete directory, or none. Raises OSError.
    """
    gone = path.with_name(f"{_REMOVED}{path.name}-{secrets.token_hex(4)}")
    with contextlib.suppress(AlreadyLockedError, FileNotFoundError), contextlib.ExitStack() as opened:
        for lock in locks:
            opened.enter_context(file_lock(lock, wait=False))
        return path.rename(gone)
    return None


def remove(path: Path) -> bool:
    """Remove an environment, a Horovod build or leftovers of one on this node, and return True.

    Return False if a process makes or uses the directory, or if it is gone. Raises OSError if it cannot be renamed;
    later errors are ignored.
    """
    if gone := set_aside(path, locks_of(path)):
        shutil.rmtree(gone, ignore_errors=True)
    return gone is not None


def remove_data(path: Path) -> bool:
    """Remove a staged data set with its partial files and manifests, and return True.

    Return False if the data set is being staged, is gone, or `path` is not the directory of a staged data set. Raises
    OSError if a file cannot be removed; the manifests may be gone then.
    """
    try:
        staged = StagedDataset(root=path.parent, name=path.name)
        with staged.reserved(0.0), staged.locked():
            staged.manifest_file.unlink(missing_ok=True)
            staged.pending_manifest_file.unlink(missing_ok=True)
            shutil.rmtree(staged.partial, ignore_errors=True)
            shutil.rmtree(staged.directory)
    except (DatasetError, ManifestError, ValueError, FileNotFoundError):
        return False
    return True


def locks_of(path: Path) -> list[Path]:
    """Return the two lock files of an environment or of wheels.

    One is held while these are made, the other while a node installs from the wheels.
    """
    return [path.with_suffix(".lock"), used_lock(path)]


def list_or_remove_shared(mount: Path, home: Path, wanted: frozenset[str]) -> dict[str, Any]:
    """List the directories on the shared file system if `wanted` is empty; else remove the unused ones in `wanted`.

    Return JSON values. The key `items` lists the directories found, or only the removed ones. Without `wanted`, the
    keys `names` and `data` contain the names of trees, environments and data sets that runs need. `mount` is where the
    file system is mounted, and `home` the login user's home. Measuring new directories takes minutes. Raises OSError.
    """
    runs, sizes = Runs(root=mount / "runs"), Sizes(home / ".deepcdk" / "sizes.json")
    for _ in shared_items(mount, home, sizes, frozenset()):
        pass  # Measure before the transaction: this takes minutes, and no run can start or end during a transaction.
    sizes.store()
    processes = names_in_processes()
    with database.transaction():  # A run that starts checks its trees in one, too.
        names, data = needed(runs)
        items = list(shared_items(mount, home, sizes, names | processes))
        if not wanted:
            return {**_document(items), "names": sorted(names), "data": sorted(data)}
        chosen = [item for item in items if item.path in wanted and not item.used]
        moved = [
            (item, set_aside(Path(item.path), locks_of(Path(item.path)) if item.kind == "wheels" else ()))
            for item in chosen
        ]
    for _, gone in moved:
        if gone:
            shutil.rmtree(gone, ignore_errors=True)
    return _document(item for item, gone in moved if gone)


def list_or_remove_on_node(items: Iterable[Item], words: Sequence[str], take: Callable[[Path], bool]) -> dict[str, Any]:
    """List these items if `words` is empty; otherwise remove the unused items among them that `words` name.

    A word is ADDRESS:PATH, and words with another node's address are ignored.
    `take` removes one path, and returns whether it did. Return JSON values: `items` with the listed or removed items.
    """
    if not words:
        return _document(items)
    pairs, mine = [word.partition(":") for word in words], own_addresses()
    wanted = {path for address, _, path in pairs if address in mine}
    return _document(item for item in items if item.path in wanted and not item.used and take(Path(item.path)))


def _document(items: Iterable[Item]) -> dict[str, Any]:
    return {"items": [dataclasses.asdict(item) for item in items]}


def main(argv: Sequence[str]) -> int:
    """Run the command in `argv` (`shared`, `node` or `data`): print the result as JSON, or an error.

    Return the exit status, 0 or 1.
    """
    command, *words = argv
    home = Path.home()
    try:
        if command == "shared":
            found = list_or_remove_shared(Path(words[0]), home, frozenset(words[1:]))
        elif command == "data":
            found = list_or_remove_on_node(data_items(Path(words[0])), words[1:], remove_data)
        else:
            sizes = Sizes(home / ".deepcdk" / "sizes.json")
            items = list(node_items(home, sizes))
            sizes.store()
            found = list_or_remove_on_node(items, words, remove)
    except OSError as error:
        print(describe(error), file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

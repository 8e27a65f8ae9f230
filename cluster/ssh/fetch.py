"""Fetch a run's results to the laptop: completely or not at all, and without harm to other files there."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
import threading
import types
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final

from agent.files.safe_read import read_regular
from agent.spec import untrusted_json
from agent.spec.run_id import GENERATED_ID_RULE, is_generated_id
from agent.spec.run_states import RECORD_FILE
from cluster.errors import DeepcdkError, RemoteError
from cluster.master_answers import AnswerError
from cluster.ssh import transfer_on_master
from cluster.ssh.push import bootstrap_command
from cluster.terminal.status_line import doing, now, warn
from cluster.terminal.units import amount

if TYPE_CHECKING:
    from cluster.ssh.master import Master


KEPT_FREE: Final = 1 << 30
"""Bytes that a fetch leaves free on the laptop's disk."""
CHECKED_EVERY: Final = 64 << 20
"""Bytes between two checks of the free space. Every fetch may use this much."""
DISK_BLOCK: Final = 4096
"""Bytes that even the smallest file takes."""
MAX_ENTRIES: Final = 1_000_000
MAX_LEVELS: Final = 100
"""Maximum depth of nested folders. Python's standard library recurses once per level."""
MAX_NAME_BYTES: Final = 255
MARKER: Final = ".deepcdk-run"
"""File in a fetched directory with the id of its run. No fetched file has this name, because it begins with a dot."""
PREFIX: Final = "fetched-"
"""Prepended to the name of a file that programs would obey."""
HEAD: Final = "head"
OBEYED: Final = frozenset(
    {
        # Version control. A file HEAD makes a bare repository, and git runs programs that its configuration names.
        *(HEAD, "_darcs", "_fossil_", "_mtn", "_svn", "cvs"),
        # Instructions to coding agents.
        *("agent.md", "agents.md", "agents.override.md", "claude.md", "claude.local.md", "copilot-instructions.md"),
        *("crush.md", "gemini.md", "qwen.md", "warp.md"),
        # Settings that programs read from the current directory or those above it.
        *("pyvenv.cfg", "cdk.json", "mise.toml", "mise.local.toml", "autorun.inf", "desktop.ini", "_exrc", "_vimrc"),
        *("opencode.json", "opencode.jsonc", "crush.json"),
    }
)
"""Folded names of files and directories that programs obey, except names that begin with a dot."""
OBEYED_STEMS: Final = frozenset(("conftest", "fabfile", "sitecustomize", "usercustomize"))
"""Python modules and packages that programs import on their own."""
_IGNORABLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt), including the characters that HFS+ ignores in
names.
"""
_SHORT_NAME: Final = re.compile(r"[^.~]{1,6}~[0-9]{1,6}(\.[^.]{0,3})?")
"""A name that Windows may give to a file besides its own, as GIT~1 to .git."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fetched:
    """The result of a fetch."""

    directory: Path
    """`into/run_id`. It may also contain files of an earlier fetch."""
    files: int
    """Number of the files of this fetch."""
    size_bytes: int


class Intake:
    """Create the files of one run in a new directory, within the limits of a fetch. Files may be renamed."""

    def __init__(self, directory: Path, run_id: str) -> None:
        """`directory` must exist. `run_id` is for messages."""
        self.directory = directory
        self._run_id, self._action = run_id, f"fetching run {run_id}"
        self._lock = threading.Lock()
        self._entries = self._arrived = self._unchecked = self._renamed = 0
        self._example = ""

    def count_entry(self) -> None:
        """Count a file or directory. Raises DeepcdkError for more than MAX_ENTRIES."""
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise DeepcdkError(
                f"{self._action}: the run has more than {MAX_ENTRIES:,} files and directories; no file was kept",
                remedy=f"copy only what you need: with rsync from runs/{self._run_id} on the shared file system (`fab "
                f"ssh-config`), or with `aws s3 cp` from runs/{self._run_id}/ in the run bucket",
            )

    def count_bytes(self, size: int) -> None:
        """Count received bytes and show their sum in the status line. Thread-safe.

        Raises DeepcdkError if less than KEPT_FREE bytes of the disk are left, which is checked every CHECKED_EVERY
        bytes.
        """
        with self._lock:
            self._arrived += size
            now(f"{self._action}, {amount(self._arrived)}")
            self._unchecked += max(size, DISK_BLOCK)
            if self._unchecked < CHECKED_EVERY:
                return
            self._unchecked = 0
        if (free := shutil.disk_usage(self.directory).free) < KEPT_FREE:
            raise DeepcdkError(
                f"{self._action} stopped after {amount(self._arrived)}: {amount(free)} of the disk are free, but "
                f"{amount(KEPT_FREE)} must stay free",
                where=str(self.directory.parent),
                remedy="free some space, or fetch elsewhere: `fab fetch --into DIRECTORY`",
            )

    def create(self, name: str) -> Path:
        """Create an empty file for the run's file `name`, and return its path, which may have another name.

        Raises EntryError if the name leads out of the run, DeepcdkError if it occurs twice, is nested too deeply, or is
        one file too many.
        """
        self.count_entry()
        if not transfer_on_master.is_path_below(name):
            raise transfer_on_master.EntryError(name)
        if name.count("/") > MAX_LEVELS:
            raise DeepcdkError(
                f"{self._action}: {name[:50]!a}... is in more than {MAX_LEVELS} nested folders; no file was kept",
                remedy="copy the run with rsync (`fab ssh-config`); in your program, pack such folders into one file",
            )
        *folders, last = name.split("/")
        folder = "/".join(stored_name(each, is_folder=True) for each in folders)
        stored = f"{folder}/{stored_name(last)}".lstrip("/")
        (self.directory / folder).mkdir(parents=True, exist_ok=True)
        # On a file system that ignores case, A and a are the same name. The second file is stored under a hash.
        for chosen in (stored, f"{folder}/{_short_name(name)}".lstrip("/")):
            with contextlib.suppress(FileExistsError):
                (self.directory / chosen).open("xb").close()
                if chosen != name:
                    self._renamed += 1
                    self._example = self._example or f"{name!a} is now {chosen!a}"
                return self.directory / chosen
        raise DeepcdkError(
            f"{self._action}: the file {name!a} occurs twice; no file was kept", remedy="repeat `fab fetch`"
        )

    def warn_of_names(self, target: Path) -> None:
        """Warn the user if files have another name on the laptop than in the run, with their number and an example."""
        if self._renamed:
            warn(
                f"{self._renamed:,} of the files in {target} have another name than in the run: {self._example}. With "
                "their original names, git, editors and other programs could execute or load them"
            )


def stored_name(name: str, *, is_folder: bool = False) -> str:
    """Return the name for storing a fetched file or directory. It is changed if a program may act on `name`.

    A changed name has the prefix PREFIX, or is a hash. Names are compared as on macOS and Windows: without regard to
    case, compatibility forms and invisible characters. Windows also ignores dots and spaces at the end, treats the part
    after a colon as a stream, and a backslash as a slash. A folder may be called HEAD, because git looks for a file.
    """
    is_one_name = "\\" not in name and not PureWindowsPath(name).drive
    if is_one_name and not any(
        _is_obeyed(folded) and not (is_folder and folded == HEAD) for folded in map(_folded, name.split(":"))
    ):
        return name
    renamed = PREFIX + re.sub(r"[\\:]", "_", name)
    return renamed if len(os.fsencode(renamed)) <= MAX_NAME_BYTES else _short_name(name)


def _folded(name: str) -> str:
    """Return a name in the form in which names are compared: without case, compatibility forms, invisible characters,
    and dots and spaces at its end.
    """
    for _ in range(2):  # case folding can produce characters that NFKC changes
        name = unicodedata.normalize("NFKC", _IGNORABLE.sub("", name)).casefold()
    return name.strip().rstrip(" .") or name


def _is_obeyed(folded: str) -> bool:
    stem = folded.partition(".")[0]
    return folded.startswith(".") or folded in OBEYED or stem in OBEYED_STEMS or bool(_SHORT_NAME.fullmatch(folded))


def _short_name(name: str) -> str:
    return PREFIX + hashlib.sha256(os.fsencode(name)).hexdigest()


@contextlib.contextmanager
def atomic_directory(into: Path, run_id: str) -> Iterator[Intake]:
    """Yield an Intake for a run. Its files appear in `into/run_id` at the end of the block.

    They replace files with the same names there. Other files there stay. Raises DeepcdkError for an invalid run id,
    without space or permission, if a link leads out of `into/run_id`, or if that directory has files and was not
    created by a fetch of this run. No file appears then, except if writing fails while files are moved to an existing
    directory.
    """
    if not is_generated_id(run_id):
        raise DeepcdkError(
            f"{run_id!a} is not the id of a run that deepcdk started, so no directory was created for it: "
            f"must be {GENERATED_ID_RULE}",
            where=str(into),
            remedy="`fab runs` lists the runs",
        )
    target = into / run_id
    try:
        _check_fetched(target, run_id)
        into.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{run_id}.", suffix=".partial", dir=into))
    except OSError as error:
        raise DeepcdkError(
            f"the results of run {run_id} cannot be stored: {error.strerror}",
            where=str(into),
            remedy="free some space, make the directory writable, or fetch elsewhere: `fab fetch --into DIRECTORY`",
        ) from None
    try:
        intake = Intake(partial, run_id)
        yield intake
        (partial / MARKER).write_text(json.dumps({"run_id": run_id}) + "\n", encoding="utf-8")
        if not os.path.lexists(target):
            partial.chmod(0o755)
            partial.rename(target)
        else:
            files = [path.relative_to(partial) for path in partial.rglob("*") if path.is_file()]
            for file in files:
                _check_free(target, file)
            for file in files:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                (partial / file).replace(target / file)
        intake.warn_of_names(target)
    except OSError as error:
        if isinstance(error, DeepcdkError):
            raise
        raise DeepcdkError(
            f"the results of run {run_id} cannot be written: {error.strerror or error}",
            where=str(error.filename or into),
            remedy="free some space or make the directory writable, then repeat `fab fetch`",
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_fetched(target: Path, run_id: str) -> None:
    """Raise DeepcdkError if the directory `target` contains files and was not created by a fetch of this run."""
    if not target.is_dir() or target.is_symlink() or not any(target.iterdir()):
        return
    for name in (MARKER, RECORD_FILE):
        with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
            if untrusted_json.parse(read_regular(target / name))["run_id"] == run_id:
                return
    raise DeepcdkError(
        f"{target} was not created by a fetch of this run, so its files were not changed",
        where=str(target.parent),
        remedy="move it away, or fetch elsewhere: `fab fetch --into DIRECTORY`",
    )


def _check_free(target: Path, file: Path) -> None:
    """Raise DeepcdkError if a file cannot be written below `target` without following a link or replacing a directory.

    Also raises it if a file is in the place of one of the folders on the way.
    """
    for place in (target, *(target / parent for parent in reversed(file.parents[:-1]))):
        if place.is_symlink():
            raise DeepcdkError(
                f"{place} is a symbolic link to {place.readlink()}, through which nothing is written",
                where=str(target.parent),
                remedy="replace it with a directory, or fetch elsewhere: `fab fetch --into DIRECTORY`",
            )
        if place.exists() and not place.is_dir():
            raise DeepcdkError(
                f"{place} is not a directory, but the run has files below this path; no file was changed",
                where=str(target.parent),
                remedy="move it away, then repeat `fab fetch`",
            )
    if (target / file).is_dir() and not (target / file).is_symlink():
        raise DeepcdkError(
            f"{target / file} is a directory, but the run has a file with this name; no file was changed",
            where=str(target.parent),
            remedy="move it away, then repeat `fab fetch`",
        )


def unpack(blocks: Iterator[bytes], into: Path, run_id: str) -> Fetched:
    """Unpack a tar stream to `into/run_id`. The files appear when all have arrived, and replace those with their names.

    Other files in that directory stay. The new files are not executable. Raises AnswerError for an entry that is not a
    plain file below its directory, DeepcdkError for an incomplete stream or as `atomic_directory` does, and the errors
    of `blocks`.
    """
    with atomic_directory(into, run_id) as intake:
        files = size_bytes = 0
        try:
            # tarfile accepts blocks of any size from a stream
            arriving = _counted(blocks, intake)
            stream: Any = types.SimpleNamespace(read=lambda _size: next(arriving, b""))
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=transfer_on_master.Entry) as archive:
                for entry, source in transfer_on_master.entries(archive):
                    if source is None:
                        intake.count_entry()
                        continue
                    path = intake.create(entry.name)
                    with source, path.open("wb") as file:
                        shutil.copyfileobj(source, file)
                    path.chmod(entry.mode & 0o644 | 0o600)  # results are data, not programs
                    files += 1
                    size_bytes += path.stat().st_size
        except transfer_on_master.EntryError as error:
            rule = "it has an entry that is not a plain file below the run"
            raise AnswerError(f"`fetch {run_id}`", error.name, rule) from None
        except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
            what = f"the results of {run_id} are incomplete: {error}"
            raise DeepcdkError(what, remedy="repeat `fab fetch`") from None
        # Read the stream to its end after the tar: only then the sender's status is known.
        for _ in blocks:
            pass
    return Fetched(directory=into / run_id, files=files, size_bytes=size_bytes)


def _counted(blocks: Iterator[bytes], intake: Intake) -> Iterator[bytes]:
    for block in blocks:
        intake.count_bytes(len(block))
        yield block


def fetch(master: Master, runs_root: str, run_id: str, into: Path, *, checkpoints: bool = False) -> Fetched:
    """Fetch a run's directory from the master to `into/run_id`, as `unpack` does. The run may still be live.

    Checkpoints, by far the largest part, are fetched only with `checkpoints`. Raises the errors of `unpack`, and
    RemoteError if the master cannot send the directory, for example because it does not exist.
    """
    excluded = () if checkpoints else ("checkpoints",)
    blocks = master.blocks(bootstrap_command("send", f"{runs_root}/{run_id}", *excluded))
    try:
        with doing(f"fetching run {run_id}"):
            return unpack(blocks, into, run_id)
    except AnswerError as error:
        error.where = master.where
        raise
    except RemoteError as error:
        raise error.reworded(f"fetching run {run_id} failed") from None

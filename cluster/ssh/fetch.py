"""Fetch a run's results to the laptop: completely or not at all, and without harm to other files there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tarfile
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.files.listing import read_regular
from agent.spec import json_text
from agent.spec.states import GENERATED_ID_RULE, RECORD_FILE, is_generated_id
from cluster.answers import AnswerError
from cluster.errors import DeepcdkError, RemoteError
from cluster.ssh import bootstrap
from cluster.ssh.push import bootstrap_command
from cluster.terminal.status_line import doing, now, warn
from cluster.terminal.units import amount

if TYPE_CHECKING:
    from cluster.ssh.master import Master


KEPT_FREE: Final = 1 << 30
"""Bytes that a fetch leaves free on the laptop's disk."""
CHECKED_EVERY: Final = 64 << 20
"""Bytes between two looks at what is free; so much is taken on any disk."""
MOST_FILES: Final = 1_000_000
MARKER: Final = ".deepcdk-run"
"""File in a fetched directory with the id of its run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fetched:
    """The fetched files."""

    directory: Path
    files: int
    size_bytes: int


@contextlib.contextmanager
def atomic_directory(into: Path, run_id: str) -> Iterator[Path]:
    """Yield a directory to fill, whose files appear in `into/run_id` at the end of the block; other files there stay.

    Raises DeepcdkError without room or permission, if a link leads out of `into/run_id`, or if another program created
    that directory; then no file appears.
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
            f"results cannot be kept there: {error.strerror}", where=str(into), remedy="give another --into DIRECTORY"
        ) from None
    try:
        yield partial
        _leave_out_repositories(partial, target)
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
    except OSError as error:
        if isinstance(error, DeepcdkError):
            raise
        where = str(error.filename or into)
        raise DeepcdkError(
            str(error.strerror or error), where=where, remedy="make room there, then repeat `fab fetch`"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _leave_out_repositories(partial: Path, target: Path) -> None:
    """Remove what would make git take a directory of the run for a repository, with a warning.

    A repository's configuration names programs (core.fsmonitor) that `git status` runs, and with it many a shell's
    prompt: a rank that left one among its results would run commands on the laptop.
    """
    found = list(_repository_marks(partial, target))
    for path in found:
        place = partial / path
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    if found:
        warn(
            f"left out of {target}: {str(found[0])!a}"
            + (f" and {len(found) - 1:,} like it" if found[1:] else "")
            + "; with it git would take a directory there for a repository, and run what its configuration names"
        )


def _repository_marks(directory: Path, earlier: Path) -> Iterator[Path]:
    """Yield the files and directories, relative to `directory`, that make a directory below it a repository to git.

    `earlier`: what the files will be merged into. Of a bare repository it is HEAD (gitrepository-layout(5); setup.c,
    is_git_directory), or the rest if HEAD came earlier. Names are compared without
    regard to case: a laptop's file system may be case-insensitive.
    """
    for parent, directories, files in os.walk(directory):
        here = Path(parent).relative_to(directory)
        dot_git = {name for name in (*directories, *files) if name.lower() == ".git"}
        directories[:] = [name for name in directories if name not in dot_git]
        yield from (here / name for name in sorted(dot_git))
        merged: list[str] = []
        with contextlib.suppress(OSError):  # not there, or not readable
            merged = [path.name for path in (earlier / here).iterdir()]
        there = {name.lower() for name in (*directories, *files, *merged)}
        if {"head", "objects", "refs"} <= there or {"head", "commondir"} <= there:
            heads = [name for name in files if name.lower() in ("head", "commondir")]
            stores = [name for name in directories if name.lower() in ("objects", "refs")]
            yield from (here / name for name in sorted(heads or stores))


def _check_fetched(target: Path, run_id: str) -> None:
    """Raise DeepcdkError if a directory contains files and was not created by a fetch of this run."""
    if not target.is_dir() or target.is_symlink() or not any(target.iterdir()):
        return
    for name in (MARKER, RECORD_FILE):
        with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
            if json_text.parse(read_regular(target / name))["run_id"] == run_id:
                return
    raise DeepcdkError(
        f"{target} was not created by a fetch of this run, so its files were not changed",
        where=str(target.parent),
        remedy="move it away, or give another --into DIRECTORY",
    )


def _check_free(target: Path, file: Path) -> None:
    """Raise DeepcdkError if a file below `target` would be written elsewhere, or replace a directory."""
    for place in (target, *(target / parent for parent in reversed(file.parents[:-1]))):
        if place.is_symlink():
            raise DeepcdkError(
                f"{place} is a symbolic link to {place.readlink()}, and nothing is written through it",
                where=str(target.parent),
                remedy="put a directory in its place, or give another --into DIRECTORY",
            )
        if place.exists() and not place.is_dir():
            raise DeepcdkError(f"{place} is not a directory", where=str(target.parent), remedy="move it away")
    if (target / file).is_dir() and not (target / file).is_symlink():
        raise DeepcdkError(f"{target / file} is a directory", where=str(target.parent), remedy="move it away")


def unpack(blocks: Iterator[bytes], into: Path, run_id: str) -> Fetched:
    """Unpack a tar stream as `into/run_id`. Files appear only once all have come; others that lie there stay.

    Raises AnswerError for an entry that is no plain file below its directory.
    """
    with atomic_directory(into, run_id) as partial:
        try:
            arriving = _while_there_is_room(blocks, partial, f"fetching run {run_id}")
            # tarfile takes blocks of any size from a stream.
            stream: Any = types.SimpleNamespace(read=lambda _size: next(arriving, b""))
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=bootstrap.Entry) as archive:
                bootstrap.unpack(archive, partial, most_files=MOST_FILES)
        except bootstrap.EntryError as error:
            rule = "it has an entry that is no plain file below the run"
            raise AnswerError(f"`fetch {run_id}`", error.name, rule) from None
        except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
            what = f"the results of {run_id} are incomplete: {error}"
            raise DeepcdkError(what, remedy="repeat `fab fetch`") from None
        # After the end of the tar the stream has to be read to its end, which has the status of the sender.
        for _ in blocks:
            pass
        files = [path for path in partial.rglob("*") if path.is_file()]
        size_bytes = sum(path.stat().st_size for path in files)
    return Fetched(directory=into / run_id, files=len(files), size_bytes=size_bytes)


def _while_there_is_room(blocks: Iterator[bytes], partial: Path, action: str) -> Iterator[bytes]:
    """Pass on a stream, and show how much has arrived. Raises DeepcdkError before the stream fills the disk."""
    size = looked = 0
    for block in blocks:
        size += len(block)
        now(f"{action}, {amount(size)}")
        if size - looked >= CHECKED_EVERY:
            looked = size
            if (free := shutil.disk_usage(partial).free) < KEPT_FREE:
                raise DeepcdkError(
                    f"after {amount(size)} only {amount(free)} of the disk are left, and {amount(KEPT_FREE)} stay free",
                    where=str(partial.parent),
                    remedy="make room there, or give another --into DIRECTORY",
                )
        yield block


def fetch(master: Master, runs_root: str, run_id: str, into: Path, *, checkpoints: bool = False) -> Fetched:
    """Fetch a run's directory; checkpoints, by far the largest part, only on request."""
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

"""Index a split's record files: the position of each record, and the label, size and format of its image.

The first rank makes the index and stores it with the files, or in the user's cache if their directory is read-only.
The maker of record files writes it as well.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.files.atomic_write import StorageError, replace_file
from agent.files.build_once import build_once
from agent.files.safe_read import is_listed
from payload.data.dataset import DataError
from payload.data.records.image_header import read_header
from payload.data.records.tf_example import LazyBytes, locate
from payload.data.records.tfrecord import FOOTER, HEADER, RecordError, read_length

FORMAT: Final = 1
READERS: Final = 16
"""Files to read concurrently, because each request to a shared file system takes long."""
RECORD: Final = np.dtype(
    [
        ("file", "<i4"),
        ("offset", "<i8"),  # of the record within its file
        ("length", "<i8"),  # of its data
        ("start", "<i4"),  # of the encoded image within the data
        ("size", "<i4"),  # of the encoded image, bytes
        ("label", "<i4"),  # as stored in the record
        ("height", "<i4"),
        ("width", "<i4"),
        ("kind", "<i4"),  # JPEG, PNG, or 0: damaged
    ]
)
_NAME: Final = re.compile(r"(?P<split>[a-z]+)-(?P<number>\d+)-of-(?P<files>\d+)(?:\.tfrecords?)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordIndex:
    """The records of one split's files."""

    directory: Path
    files: tuple[str, ...]
    """File names, ordered by number."""
    sizes: tuple[int, ...]
    """Size of each file in bytes."""
    table: npt.NDArray[Any]
    """One row of type RECORD for each record, ordered by file and offset."""
    damage: tuple[str, ...] = ()
    """Descriptions of the damaged files and records that were skipped."""

    def to_bytes(self) -> bytes:
        """Encode the index as the content of its file."""
        head = {"format": FORMAT, "files": self.files, "sizes": self.sizes, "damage": self.damage}
        content = io.BytesIO()
        np.savez(content, head=np.frombuffer(json.dumps(head).encode(), np.uint8), table=self.table)
        return content.getvalue()

    @classmethod
    def from_bytes(cls, directory: Path, content: bytes) -> RecordIndex:
        """Decode the content of an index file. `directory`: the directory of the record files.

        Raises ValueError if the content is damaged or has another format.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                head, table = json.loads(arrays["head"].tobytes()), arrays["table"]
            if head["format"] != FORMAT or table.dtype != RECORD:
                raise ValueError("of another format")
            return cls(
                directory=directory,
                files=tuple(head["files"]),
                sizes=tuple(head["sizes"]),
                table=table,
                damage=tuple(head["damage"]),
            )
        except (OSError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"no index: {error}") from error


def record_files(directory: Path, splits: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of a split's record files, in order, and the names missing from their numbering.

    `splits`: possible names of the split. The first name with files is used. If none has files, or the directory does
    not exist, both lists are empty. Raises DataError if files of several sets are mixed.
    """
    names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    for split in splits:
        found: dict[int, str] = {}
        total = 0
        for name in names:
            match = _NAME.fullmatch(name)
            if match and match["split"] == split:
                number, files = int(match["number"]), int(match["files"])
                if number in found or (found and files != total):
                    other = next(iter(found.values()))
                    raise DataError(
                        f"{directory}: {other} and {name} are of different sets of files; remove the files of one set"
                    )
                found[number], total = name, files
        if found:
            some = next(iter(found.values()))
            missing = [_sibling(some, number) for number in range(total) if number not in found]
            return [found[number] for number in sorted(found)], missing
    return [], []


def _sibling(name: str, number: int) -> str:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(name)
    start, end = match.span("number")
    return f"{name[:start]}{number:0{end - start}d}{name[end:]}"


def open_index(directory: Path, splits: Sequence[str], *, skip: bool) -> RecordIndex:
    """Return the index of a split's files. If no stored index matches, read the headers of all records and store one.

    One process builds an index while others wait. If it cannot be stored, a warning is printed. `splits`: possible
    names of the split (see `record_files`). Raises DataError if the split has no files, and RecordError for a missing
    or damaged file. With `skip`, missing files and damaged records are left out and listed in `damage`.
    """
    files, missing = record_files(directory, splits)
    if not files:
        raise DataError(
            f"{directory}: no record files {splits[0]}-00000-of-NNNNN; set --data-dir to the directory of these files"
        )
    if missing and not skip:
        raise RecordError(
            directory / missing[0],
            None,
            f"no such file; the split lacks {len(missing)} of its files; copy them, or "
            "continue without them with --corrupt skip",
        )
    place = _writable(directory) / f"{splits[0]}.index"

    def make() -> RecordIndex:
        index = make_index(directory, files, skip=skip)
        _keep(index, place)
        return index

    index = build_once(
        lambda: _kept(directory, files, (directory / place.name, place), skip=skip),
        make,
        lock=place.with_name(f".{place.name}.lock"),
    )
    absent = tuple(f"{directory / name}: no such file" for name in missing)
    return dataclasses.replace(index, damage=index.damage + absent)


def make_index(directory: Path, files: Sequence[str], *, skip: bool) -> RecordIndex:
    """Build an index from the headers of all records.

    Raises RecordError for the first damaged record. With `skip`, damaged records are left out and listed in `damage`.
    """
    with ThreadPoolExecutor(max_workers=READERS) as pool:
        scanned = list(pool.map(lambda name: scan(directory / name, skip=skip), files))
    for number, (rows, _, _) in enumerate(scanned):
        rows["file"] = number
    return RecordIndex(
        directory=directory,
        files=tuple(files),
        sizes=tuple(size for _, size, _ in scanned),
        table=np.concatenate([rows for rows, _, _ in scanned]),
        damage=tuple(line for _, _, lines in scanned for line in lines),
    )


def scan(path: Path, *, skip: bool = False) -> tuple[npt.NDArray[Any], int, list[str]]:
    """Return the rows of one file's records, the file's size, and descriptions of its damage.

    The file's number in the rows is 0. After a damaged header, the rest of the file is left out. Raises RecordError if
    the file cannot be read, or if it is damaged and `skip` is not set.
    """
    rows: list[tuple[int, ...]] = []
    damage: list[str] = []
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise RecordError(
            path, None, f"cannot be opened: {error.strerror}; make it readable, or copy the file again"
        ) from error
    try:
        size, offset = os.fstat(descriptor).st_size, 0
        if not size:
            _note(RecordError(path, None, "the file is empty; copy it again"), damage, skip)
        while offset < size:
            try:
                length = read_length(_read(descriptor, offset, HEADER), path, offset, size)
            except RecordError as error:
                _note(error, damage, skip)
                break  # the start of the next record is unknown
            try:
                rows.append(_row(descriptor, offset, length))
            except ValueError as error:
                fix = "" if skip else "; copy the file or make it again, or skip such records with --corrupt skip"
                _note(RecordError(path, offset, f"{error}{fix}"), damage, skip)
            offset += HEADER + length + FOOTER
        return np.array(rows, RECORD), size, damage
    except OSError as error:
        raise RecordError(
            path, None, f"cannot be read: {error.strerror}; make it readable, or copy the file again"
        ) from error
    finally:
        os.close(descriptor)


def _row(descriptor: int, offset: int, length: int) -> tuple[int, ...]:
    def fetch(start: int, count: int) -> bytes:
        return _read(descriptor, offset + HEADER + start, count)

    found = locate(LazyBytes(fetch, length))
    image = LazyBytes(lambda start, count: fetch(found.start + start, count), found.size)
    header = read_header(image)
    return (0, offset, length, found.start, found.size, found.label, header.height, header.width, header.kind)


def _read(descriptor: int, start: int, count: int) -> bytes:
    return os.pread(descriptor, count, start)


def _note(error: RecordError, damage: list[str], skip: bool) -> None:
    if not skip:
        raise error
    damage.append(str(error))


def _kept(directory: Path, files: Sequence[str], places: Sequence[Path], *, skip: bool) -> RecordIndex | None:
    """Return the first index in `places` that lists exactly these files with their present sizes, or None.

    Without `skip`, an index that lists damaged records does not count.
    """
    for place in places:
        if not is_listed(place):  # on NFS, a read may not see a file that a rank on another node has just written
            continue
        try:
            index = RecordIndex.from_bytes(directory, place.read_bytes())
        except (OSError, ValueError):
            continue
        sizes = tuple(_size(directory / name) for name in files)
        if index.files == tuple(files) and index.sizes == sizes and (skip or not index.damage):
            return index
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _writable(directory: Path) -> Path:
    """Return the directory for an index: that of the record files, or one in the user's cache if it is read-only."""
    if os.access(directory, os.W_OK):
        return directory
    name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]
    return Path.home() / ".cache" / "deepcdk" / "records" / name


def _keep(index: RecordIndex, place: Path) -> None:
    """Store the index. If this fails, print a warning: the next rank then reads the files again."""
    try:
        replace_file(place, index.to_bytes())
    except StorageError as error:
        print(
            f"payload.data: the index was not stored: {error.what}. Each rank reads all record files instead",
            file=sys.stderr,
            flush=True,
        )

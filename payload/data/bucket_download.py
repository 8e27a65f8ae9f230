"""Copy data from a bucket to the node's local disk, once for all of its ranks."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from agent.errors import describe
from agent.files.file_lock import file_lock
from agent.staging.errors import DatasetError, DiskFullError, IncompleteDataError
from agent.staging.manifest import ManifestError
from agent.staging.s3_objects import AccessDeniedError, Prefix, fetch_to_disk
from agent.staging.staged_dataset import StagedDataset
from payload.data.dataset import DataError

SCHEME: Final = "s3://"
FRESH_S: Final = 600.0
"""Time during which other ranks rely on a check of the copy. They start within seconds and wait for the check."""
PROGRESS_INTERVAL_S: Final = 10.0
"""Time between progress messages."""
_ELSEWHERE: Final = "to copy to another directory, train with --local-dir DIR"
_ADVICE: Final = {
    AccessDeniedError.kind: "add the bucket to data_buckets in cdk.json, run `fab up`, and `fab replace` workers that "
    "booted while cdk.json named no bucket, or let this host's role read the bucket; then repeat",
    DiskFullError.kind: f"free space on the disk; {_ELSEWHERE}",
    IncompleteDataError.kind: "repeat the command, which keeps complete files",
}
"""What to do about an error, by its kind."""


def local_directory(data_dir: str | Path, *, root: Path | None = None) -> Path:
    """Return the directory of the data: `data_dir` itself, or for s3://BUCKET/PREFIX a copy, which is downloaded first.

    The node's first rank downloads missing or changed files and prints its progress, while the others wait. An
    interrupted copy is resumed. A copy that a rank checked less than FRESH_S ago is not checked again. `root`:
    directory for copies; None: ~/data, as with `fab stage-data --to local`. Raises DataError if the copy fails. A
    `data_dir` that is a path is not checked.
    """
    address = str(data_dir)
    if not address.startswith(SCHEME):
        return Path(data_dir)
    place = root or Path.home() / "data"
    try:
        prefix = Prefix.parse(address)
        dataset = StagedDataset(root=place, name=_name(prefix, place))
        progress = _ProgressLines(prefix)
        with file_lock(place / f".{dataset.name}.training", on_wait=progress.wait):
            stamp = place / f".{dataset.name}.checked"
            if not _is_fresh(dataset, stamp, str(prefix)):
                fetch_to_disk(prefix, dataset, lambda entries: entries, progress)
                stamp.write_text(json.dumps({"source": str(prefix), "at": time.time()}), encoding="utf-8")
    except (DatasetError, ManifestError) as error:
        advice = _ADVICE.get(getattr(error, "kind", ""), "")
        raise DataError("; ".join(filter(None, [f"--data-dir {address}: {error}", advice]))) from error
    except OSError as error:
        raise DataError(
            f"--data-dir {address}: cannot be copied to {place}: {describe(error)}; {_ELSEWHERE}"
        ) from error
    return dataset.directory


def _name(prefix: Prefix, root: Path) -> str:
    """Return the name of the prefix's copy below `root`: the prefix's last part, and a hash of the whole prefix.

    In the last part, characters other than letters, digits, `.`, `_` and `-` become `-`. The hash is omitted if `fab
    stage-data` has copied this prefix under the plain name.
    """
    last = re.sub(r"[^A-Za-z0-9._-]", "-", prefix.key.rpartition("/")[2] or prefix.bucket)[:80].strip("._-")
    plain = last or "data"
    try:
        if StagedDataset(root=root, name=plain).listed().source == str(prefix):
            return plain
    except (DatasetError, ManifestError, OSError):
        pass
    return f"{plain}-{hashlib.sha256(str(prefix).encode()).hexdigest()[:8]}"


def _is_fresh(dataset: StagedDataset, stamp: Path, source: str) -> bool:
    """Return whether a rank checked the copy of `source` within FRESH_S, and all files still have their sizes.

    `stamp`: file with the source and time of the last check.
    """
    try:
        found = json.loads(stamp.read_text(encoding="utf-8"))
        if found["source"] != source or not 0 <= time.time() - found["at"] < FRESH_S:
            return False
        return all(dataset.path(entry).stat().st_size == entry.size for entry in dataset.manifest().entries)
    except (OSError, ValueError, KeyError, TypeError, DatasetError):
        return False


class _ProgressLines:
    """Print the progress of a copy to standard error."""

    def __init__(self, prefix: Prefix, say: Callable[[str], None] | None = None) -> None:
        self._prefix = prefix
        self._say = say or (lambda line: print(f"payload.data: {line}", file=sys.stderr, flush=True))
        self._told = float("-inf")

    def wait(self) -> None:
        self._say(f"{self._prefix}: waiting for another rank of this node, which downloads the data")

    def __call__(self, message: dict[str, Any]) -> None:
        now = time.monotonic()
        if "of_bytes" not in message or now - self._told < PROGRESS_INTERVAL_S:
            return
        self._told = now
        files = f"{message['files']:,} of {message['of_files']:,} files"
        self._say(f"{self._prefix}: {files}, {message['bytes']:,} of {message['of_bytes']:,} bytes downloaded")

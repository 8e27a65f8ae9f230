"""Make record files from raw images: `python -m payload.data.records.maker SOURCE DESTINATION --sizes 0,160,352`.

SOURCE contains train/CLASS/*.JPEG and validation/CLASS/*.JPEG, the layout of ImageNet. DESTINATION gets a directory for
each size, with train-00000-of-NNNNN, validation-00000-of-NNNNN and their indexes. It also gets manifest.json and
labels.txt. After an interruption, the same command resumes with the missing shards.

Exit status: 0: done; 1: failed, with a one-line reason; 2: invalid arguments.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError
from agent.files.atomic_write import StorageError, replace_file, storing
from agent.files.file_lock import file_lock
from payload.data.class_names import LABELS_FILE
from payload.data.dataset import DataError
from payload.data.records.index import make_index, record_files
from payload.data.records.shards import MAKING, ShardJob, ShardReport, folder_of, make_shard, split
from payload.data.records.source_images import Source
from payload.model_arguments import EXIT_FAILED, EXIT_USAGE, Parser, report_error
from payload.settings.parser import integer, integers, path_argument

COMMAND: Final = "payload.data.records.maker"
FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
QUALITY: Final = 90
"""JPEG quality of resized images. It is above Pillow's default of 75, to add few artifacts to the source's."""
SHARDS: Final = 1024
VALIDATION_SHARE: Final = 8
"""The number of validation shards is that of training shards divided by this number (1024 and 128, as is usual)."""
PROGRESS_INTERVAL_S: Final = 5.0
"""Time between progress messages."""
LARGEST_SIZE: Final = 1 << 13


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakerOptions:
    """Options for making record files, as set by the command's flags. Raises DataError for an invalid value."""

    source: Path
    destination: Path
    sizes: tuple[int, ...] = (0, 160, 352)
    shards: int = SHARDS
    workers: int = 1
    quality: int = QUALITY
    skip: bool = False
    validation_list: Path | None = None

    def __post_init__(self) -> None:
        if not self.sizes or len(set(self.sizes)) != len(self.sizes):
            raise DataError(f"--sizes {','.join(map(str, self.sizes))}: must be different sizes, 0 for the originals")
        if not all(0 <= size <= LARGEST_SIZE for size in self.sizes):
            raise DataError(f"--sizes {','.join(map(str, self.sizes))}: each must be 0 to {LARGEST_SIZE}")
        for flag, value, low, high in (
            ("--shards", self.shards, 1, 99_999),
            ("--workers", self.workers, 1, 1024),
            ("--quality", self.quality, 1, 95),
        ):
            if not low <= value <= high:
                raise DataError(f"{flag} {value}: must be {low} to {high}")


def make_records(options: MakerOptions, tell: Callable[[str], None]) -> dict[str, Any]:
    """Make the missing shards, the indexes, labels.txt and the manifest; return the content of the manifest.

    If another process works on the same destination, wait for it. `tell` receives lines about the progress. Raises
    DataError if the source has another layout, an image is damaged and not skipped, or the destination contains other
    data, and StorageError if the disk is full or not writable. Finished shards are kept.
    """
    source = Source.scan(options.source, options.validation_list)
    jobs = _jobs(options, source)
    with storing(options.destination):
        for folder in (options.destination / MAKING, *(folder_of(options.destination, size) for size in options.sizes)):
            folder.mkdir(parents=True, exist_ok=True)
    with file_lock(
        options.destination / MAKING / "lock",
        on_wait=lambda: tell("waiting for another process that makes these records"),
    ):
        _claim(options, source)
        reports = {report.name: report for job in jobs if (report := ShardReport.read(job)) is not None}
        left = [job for job in jobs if job.name not in reports]
        total = sum(len(job.images) for job in jobs)
        clock = _Progress(tell, total, sum(len(job.images) for job in jobs if job.name in reports))
        if reports:
            tell(f"{len(reports):,} of {len(jobs):,} shards already exist")
        for job, report in made_shards(left, options.workers):
            reports[report.name] = report
            clock.add(len(job.images))
        for size in options.sizes:
            _write_indexes(folder_of(options.destination, size))
        manifest = _manifest(options, source, [reports[job.name] for job in jobs])
        names = "".join(f"{name}\n" for name in source.classes)
        replace_file(options.destination / LABELS_FILE, names.encode())
        replace_file(options.destination / MANIFEST, json.dumps(manifest, indent=1).encode())
    return manifest


def _jobs(options: MakerOptions, source: Source) -> list[ShardJob]:
    jobs = []
    held_shards = max(1, options.shards // VALIDATION_SHARE)
    for part, images, shards in (
        ("train", source.training, options.shards),
        ("validation", source.validation, held_shards),
    ):
        parts = split(images, shards) if images else []
        for number, chosen in enumerate(parts):
            jobs.append(
                ShardJob(
                    root=options.source,
                    destination=options.destination,
                    name=f"{part}-{number:05d}-of-{len(parts):05d}",
                    images=chosen,
                    sizes=options.sizes,
                    quality=options.quality,
                    skip=options.skip,
                )
            )
    return jobs


def _claim(options: MakerOptions, source: Source) -> None:
    """Record the inputs of the shards, or check that existing shards have the same inputs. Raises DataError."""
    listed = [[image.path, image.label] for image in (*source.training, *source.validation)]
    plan = {
        "format": FORMAT,
        "sizes": options.sizes,
        "shards": options.shards,
        "quality": options.quality,
        "images": hashlib.sha256(json.dumps(listed).encode()).hexdigest(),
    }
    note = options.destination / MAKING / "plan.json"
    text = json.dumps(plan, sort_keys=True)
    try:
        found = note.read_text(encoding="utf-8")
    except FileNotFoundError:
        replace_file(note, text.encode())
        return
    if found != text:
        rule = "use another directory, or remove this one"
        raise DataError(f"{options.destination}: contains shards of other images, sizes or settings; {rule}")


def _write_indexes(directory: Path) -> None:
    for part in ("train", "validation"):
        files, missing = record_files(directory, (part,))
        if missing:
            raise DataError(
                f"{directory / missing[0]}: was removed while the other shards were made; run the command again"
            )
        if files:
            replace_file(directory / f"{part}.index", make_index(directory, files, skip=False).to_bytes())


def _manifest(options: MakerOptions, source: Source, reports: Sequence[ShardReport]) -> dict[str, Any]:
    def records(part: str) -> int:
        return sum(report.records for report in reports if report.name.startswith(f"{part}-"))

    return {
        "format": FORMAT,
        "classes": source.classes,
        "first_label": 1,
        "training": records("train"),
        "validation": records("validation"),
        "sizes": options.sizes,
        "quality": options.quality,
        "skipped": [line for report in reports for line in report.skipped],
        "files": {path: dict(facts) for report in reports for path, facts in sorted(report.files.items())},
    }


class _Progress:
    """Report progress at intervals."""

    def __init__(self, tell: Callable[[str], None], total: int, there: int) -> None:
        self._tell, self._total, self._there = tell, total, there
        self._began = self._told = time.monotonic()
        self._made = 0

    def add(self, images: int) -> None:
        self._made += images
        now = time.monotonic()
        done = self._there + self._made
        if now - self._told < PROGRESS_INTERVAL_S and done < self._total:
            return
        self._told = now
        rate = self._made / max(now - self._began, 1e-9)
        left = round((self._total - done) / rate)
        self._tell(f"{done:,} of {self._total:,} images, {rate:,.0f} a second, {left // 60}:{left % 60:02d} left")


def made_shards(jobs: Sequence[ShardJob], workers: int) -> Iterator[tuple[ShardJob, ShardReport]]:
    """Make shards in at most `workers` processes. Yield each job with its report as soon as its shard is done.

    After a failure, the shards in progress are completed, then DataError is raised.
    """
    if not jobs:
        return
    pool = concurrent.futures.ProcessPoolExecutor(
        max_workers=min(workers, len(jobs)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_end_with_parent,
    )
    try:
        futures = {pool.submit(_attempt, job): job for job in jobs}
        for future in concurrent.futures.as_completed(futures):
            report = future.result()
            if isinstance(report, str):
                raise DataError(report)
            yield futures[future], report
    except BrokenProcessPool:
        raise DataError(
            "a worker process was killed, perhaps because memory ran out; repeat the command with a smaller --workers. "
            "It makes only the missing shards"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _attempt(job: ShardJob) -> ShardReport | str:
    """Make a shard in a worker process. Return errors as text, because not every exception can be pickled."""
    try:
        return make_shard(job)
    except StorageError as error:
        return f"{error.what}, then repeat the command"
    except ReportedError as error:
        return str(error)


def _end_with_parent() -> None:
    """Start a thread that exits this worker process when its parent exits."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _parse(argv: Sequence[str]) -> MakerOptions:
    parser = Parser(prog=f"python -m {COMMAND}", description="Make record files from raw images in class folders.")
    parser.add_argument("source", type=path_argument, help="directory that contains train/CLASS/*.JPEG and validation/")
    parser.add_argument(
        "destination", type=path_argument, help="directory for the record files, with a subdirectory for each size"
    )
    sizes = "lengths of the shorter side, pixels, separated by commas; 0: unchanged (0,160,352)"
    parser.add_argument("--sizes", type=integers, default=(0, 160, 352), help=sizes)
    parser.add_argument(
        "--shards", type=integer, default=SHARDS, help=f"number of files with training images for each size ({SHARDS})"
    )
    parser.add_argument(
        "--workers", type=integer, default=len(os.sched_getaffinity(0)), help="number of processes (number of cores)"
    )
    parser.add_argument(
        "--quality", type=integer, default=QUALITY, help=f"quality of resized JPEGs, 1 to 95 ({QUALITY})"
    )
    parser.add_argument(
        "--corrupt", choices=("error", "skip"), default="error", help="how to handle a damaged image (error)"
    )
    parser.add_argument(
        "--validation-list",
        type=path_argument,
        help="file with the classes of the validation images: lines FILE CLASS, or CLASS for each file in sorted order",
    )
    given = vars(parser.parse_args(list(argv)))
    return MakerOptions(skip=given.pop("corrupt") == "skip", **given)


def main(argv: Sequence[str]) -> int:
    """Make record files from raw images, and print the progress and the counts; return the exit status.

    The status is EXIT_USAGE for invalid values, and EXIT_FAILED after another error. For an unknown or malformed flag,
    SystemExit is raised.
    """

    def tell(line: str) -> None:
        print(line, flush=True)

    try:
        options = _parse(argv)
    except ReportedError as error:
        return report_error(COMMAND, error, EXIT_USAGE)
    try:
        manifest = make_records(options, tell)
    except ReportedError as error:
        return report_error(COMMAND, error, EXIT_FAILED)
    for line in manifest["skipped"]:
        tell(f"skipped: {line}")
    counts = f"{manifest['training']:,} training and {manifest['validation']:,} validation images"
    tell(f"{counts} of {len(manifest['classes']):,} classes, {len(manifest['skipped'])} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

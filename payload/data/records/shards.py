"""Write one shard of a data set: the same images in a record file for each size."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from PIL import Image, UnidentifiedImageError

from agent.files.atomic_write import replace_file, storing, sync_directory
from payload.data.dataset import DataError
from payload.data.records.record_split import ORIGINAL
from payload.data.records.source_images import SourceImage
from payload.data.records.tf_example import IMAGE, LABEL, example
from payload.data.records.tfrecord import framed

LARGEST_PIXELS: Final = 1 << 27
"""Maximum pixels of an image. A larger image is rejected because it needs gigabytes of memory. Less than the limit at
which Pillow refuses to open an image."""


class DamagedImageError(ValueError):
    """An image cannot be decoded."""


def resized_versions(content: bytes, sizes: Sequence[int], *, quality: int) -> list[bytes]:
    """Resize an image to each of these shorter sides, and return the JPEGs. Images are never enlarged.

    A JPEG that needs no change is returned as it is. The image is decoded in any case, to detect damage. `sizes`:
    pixels; 0: the original size. Raises DamagedImageError, also if the image has more than LARGEST_PIXELS pixels.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(content), formats=("JPEG", "PNG"))
        if image.width * image.height > LARGEST_PIXELS:
            raise DamagedImageError(f"{image.width} x {image.height} is more than {LARGEST_PIXELS:,} pixels")
        unchanged = image.format == "JPEG" and image.mode in ("RGB", "L")
        image.load()
    except Image.DecompressionBombError:  # Pillow's own limit, which is higher
        raise DamagedImageError(f"more than {LARGEST_PIXELS:,} pixels") from None
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError) as error:
        raise DamagedImageError(str(error)) from error
    if image.mode not in ("RGB", "L"):
        image = image.convert("RGB")  # CMYK, palettes, transparency
    return [_version(image, content if unchanged else None, size, quality) for size in sizes]


def _version(image: Image.Image, content: bytes | None, size: int, quality: int) -> bytes:
    width, height = image.size
    if size and min(width, height) > size:
        scale = size / min(width, height)
        image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.LANCZOS)
    elif content is not None:
        return content
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=quality)
    return encoded.getvalue()


FIRST_LABEL: Final = 1
"""Labels in record files begin at 1, as in the usual ImageNet files."""
MAKING: Final = ".making"
"""Directory for the maker's notes about finished shards."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardJob:
    """The inputs of one shard."""

    root: Path
    """Directory of the raw images."""
    destination: Path
    name: str
    """Name of its files, the same for each size: train-00000-of-01024."""
    images: tuple[SourceImage, ...]
    sizes: tuple[int, ...]
    """Shorter sides in pixels; 0: the original size."""
    quality: int
    """JPEG quality, 1 to 95."""
    skip: bool
    """Skip damaged images instead of raising an error."""

    @property
    def note(self) -> Path:
        """Return the path of the file that marks the shard as done."""
        return self.destination / MAKING / f"{self.name}.json"

    def file(self, size: int) -> Path:
        """Return the path of the record file for one size; 0: the original size."""
        return folder_of(self.destination, size) / self.name


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardReport:
    """The contents of a finished shard."""

    name: str
    records: int
    skipped: tuple[str, ...]
    """Paths of damaged images that were skipped, each with the reason."""
    files: Mapping[str, Mapping[str, Any]]
    """The `bytes` and `sha256` of each file, by path below the destination."""

    @classmethod
    def read(cls, job: ShardJob) -> ShardReport | None:
        """Return the report of a finished shard; None if the shard is not finished.

        It is not finished if the report is missing or damaged, or if a file is missing or has another size.
        """
        try:
            document = json.loads(job.note.read_text(encoding="utf-8"))
            report = cls(**{**document, "skipped": tuple(document["skipped"])})
            for path, facts in report.files.items():
                if (job.destination / path).stat().st_size != facts["bytes"]:
                    return None
            return report
        except (OSError, ValueError, KeyError, TypeError):
            return None


def folder_of(destination: Path, size: int) -> Path:
    """Return the directory of the record files for one size; 0: the original size."""
    return destination / (str(size) if size else ORIGINAL)


def make_shard(job: ShardJob) -> ShardReport:
    """Write one shard and its report; return the report. Its files appear only after all of them are complete.

    Raises DataError, which names the image, if an image is missing or damaged. With `skip`, damaged images are left
    out, unless all are damaged. Raises StorageError if the disk is full.
    """
    partials = [job.file(size).with_name(f".{job.name}.partial") for size in job.sizes]
    skipped: list[str] = []
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(storing(job.file(job.sizes[0])))
            outputs = [_Output(stack.enter_context(partial.open("wb"))) for partial in partials]
            for image in job.images:
                try:
                    made = resized_versions(_content(job.root / image.path), job.sizes, quality=job.quality)
                except DamagedImageError as error:
                    if not job.skip:
                        rule = "replace it, or leave such images out with --corrupt skip"
                        raise DataError(f"{job.root / image.path}: damaged: {error}; {rule}") from error
                    skipped.append(f"{image.path}: {error}")
                    continue
                for output, content in zip(outputs, made, strict=True):
                    output.write(_record(image, content))
            for output in outputs:
                output.end()
        if len(skipped) == len(job.images):
            raise DataError(
                f"{job.root}: all {len(skipped)} images of the shard {job.name} are damaged; copy the raw images again"
            )
        facts = {}
        for size, partial, output in zip(job.sizes, partials, outputs, strict=True):
            target = job.file(size)
            with storing(target):
                partial.replace(target)
                sync_directory(target.parent)
            facts[str(target.relative_to(job.destination))] = output.facts()
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)
    report = ShardReport(name=job.name, records=len(job.images) - len(skipped), skipped=tuple(skipped), files=facts)
    replace_file(job.note, json.dumps(dataclasses.asdict(report)).encode())
    return report


class _Output:
    """Write a file and compute its SHA-256 at the same time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest, self._size = file, hashlib.sha256(), 0

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)
        self._size += len(content)

    def end(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def facts(self) -> dict[str, Any]:
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; make it readable, or copy it again") from error


def _record(image: SourceImage, content: bytes) -> bytes:
    path = Path(image.path)
    features: dict[str, bytes | int] = {
        IMAGE: content,
        LABEL: image.label + FIRST_LABEL,
        "image/filename": path.name.encode(),
        "image/format": b"JPEG",
    }
    return framed(example(features))


def split(images: Sequence[SourceImage], shards: int) -> list[tuple[SourceImage, ...]]:
    """Divide images, in order, into `shards` shards, or into fewer if there are not enough images.

    Their sizes differ by at most one. No shard is empty.
    """
    count = min(shards, len(images))
    return [tuple(images[len(images) * n // count : len(images) * (n + 1) // count]) for n in range(count)]

"""Write the included utterances to payload/data/datasets/japanese-vowels/, from the files of the aeon package.

    uv pip install --target DIR --no-deps aeon==1.6.0
    python -m tools.japanese_vowels DIR/aeon/datasets/data/JapaneseVowels

The data are from the UCI Machine Learning Repository (Kudo, Toyama, Shimbo 1999, https://doi.org/10.24432/C5NS47). The
package aeon includes them with 22 MB of other data, and needs Numba. As bytes, the sequences take 101 KB.
"""

from __future__ import annotations

import gzip
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.datasets.japanese_vowels import COEFFICIENTS, DIRECTORY, FRAMES, bytes_of

FILES: Final = {"train": "JapaneseVowels_TRAIN.ts", "t10k": "JapaneseVowels_TEST.ts"}
"""File names in aeon, keyed by the prefix of the IDX files."""


def read_ts(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Read a file in sktime's format. Return the sequences, [N, FRAMES, COEFFICIENTS], and the speakers, [N], 0 to 8.

    A line contains the values of each coefficient in turn, then the speaker, 1 to 9. The values are encoded as bytes
    from 1 to 255. Shorter sequences are padded with 0.
    """
    text = path.read_text(encoding="utf-8").splitlines()
    lines = [line for line in text if line.strip() and line[0] not in "#@"]
    sequences = np.zeros((len(lines), FRAMES, COEFFICIENTS), np.uint8)
    speakers = np.zeros(len(lines), np.uint8)
    for number, line in enumerate(lines):
        *coefficients, speaker = line.split(":")
        frames = bytes_of(np.array([each.split(",") for each in coefficients], np.float64).T)
        sequences[number, : len(frames)] = frames
        speakers[number] = int(speaker) - 1
    return sequences, speakers


def idx_bytes(values: npt.NDArray[np.uint8]) -> bytes:
    """Encode bytes as a compressed IDX file. Equal values give equal files."""
    header = struct.pack(f">HBB{values.ndim}I", 0, 0x08, values.ndim, *values.shape)
    return gzip.compress(header + values.tobytes(), mtime=0)


def main(argv: Sequence[str]) -> int:
    """Convert both files in the directory `argv[0]` to four IDX files in DIRECTORY.

    Returns the exit status: 2 if `argv` is not one argument, else 0.
    """
    if len(argv) != 1:
        files = " and ".join(FILES.values())
        print(f"usage: python -m tools.japanese_vowels DIRECTORY (with {files})", file=sys.stderr)
        return 2
    for prefix, name in FILES.items():
        sequences, speakers = read_ts(Path(argv[0]) / name)
        (DIRECTORY / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx_bytes(sequences))
        (DIRECTORY / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx_bytes(speakers))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

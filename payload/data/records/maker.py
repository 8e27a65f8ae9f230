"""Make record files from raw images: `python -m payload.data.records.maker SOURCE DESTINATION --sizes 0,160,352`.

SOURCE contains train/CLASS/*.JPEG and validation/CLASS/*.JPEG, the layout of ImageNet. DESTINATION gets a directory for
each size, with train-00000-of-NNNNN, validation-00000-of-NNNNN and their indexes. It also gets manifest.json and
labels.txt. After an interruption, the same command resumes with the missing shards.

Exit status: 0: done; 1: failed, with a one-line reason; 2: invalid arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from agent.errors import ReportedError
from payload.data.records.make_records import QUALITY, SHARDS, MakerOptions, make_records
from payload.model_arguments import EXIT_FAILED, EXIT_USAGE, Parser, report_error
from payload.settings.parser import integer, integers, path_argument

COMMAND: Final = "payload.data.records.maker"


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
    parser.add_argument("--validation-list", type=path_argument, help="file with the classes of the validation images")
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

"""Export the network of a completed or stopped run from a checkpoint: `python -m payload.export --run-dir DIR`.

Atomically writes model.keras, a SavedModel, model.json, and with --onnx model.onnx, to DIR/export. Exit status: 0:
done; 1: failed, with a one-line reason; 2: invalid arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.errors import ReportedError
from payload.model_arguments import EXIT_FAILED, Parser, quiet_tensorflow, report_error
from payload.settings.parser import path_argument
from payload.training.export.onnx_conversion import require_converter
from payload.training.export.settings_file import read_model_spec

COMMAND = "payload.export"


def main(argv: Sequence[str]) -> int:
    """Export the network of a run from a checkpoint, and print where; return the exit status.

    After an error, which is printed, the status is EXIT_FAILED. For invalid arguments, SystemExit is raised.
    """
    parser = Parser(prog=f"python -m {COMMAND}", description="Export the network of a run from a checkpoint.")
    parser.add_argument("--run-dir", type=path_argument, required=True, metavar="DIR", help="the run's directory")
    parser.add_argument(
        "--checkpoint",
        default="",
        metavar="NAME",
        help="checkpoint, for example step-00000460; default: the newest valid one",
    )
    parser.add_argument(
        "--into", type=path_argument, metavar="DIR", help="directory to create or replace; default: RUN_DIR/export"
    )
    parser.add_argument("--onnx", action="store_true", help="also write model.onnx")
    given = parser.parse_args(list(argv))
    quiet_tensorflow()
    try:
        read_model_spec(given.run_dir)  # fail before the slow import of TensorFlow
        if given.onnx:
            require_converter()
        print(_export(given))
    except ReportedError as error:
        return report_error(COMMAND, error, EXIT_FAILED)
    return 0


def _export(given: argparse.Namespace) -> str:
    from payload.training.export.export_network import EXPORT_DIRECTORY, export_network
    from payload.training.export.model_card import ONNX_FILE
    from payload.training.export.restored_network import restore

    found = restore(given.run_dir, given.checkpoint)
    for fault in found.faults:
        print(f"{COMMAND}: warning: skipped {fault}", file=sys.stderr, flush=True)
    into: Path = given.into or given.run_dir / EXPORT_DIRECTORY
    card = export_network(into, found.model_spec, found.state, found.steps, onnx=given.onnx)
    averaged = ", the moving average of its weights" if card.averaged else ""
    difference = f"{card.onnx.largest_difference:.1g}" if card.onnx else ""
    onnx = f"; the probabilities of {ONNX_FILE} differ from Keras's by at most {difference}" if card.onnx else ""
    return f"{into}: {card.network} of {found.checkpoint}{averaged}{onnx}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

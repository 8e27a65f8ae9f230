"""Arguments and error reports that the commands for trained networks share."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final, NoReturn

from agent.errors import ReportedError
from payload.settings.parser import path_argument
from payload.training.export.model_card import KINDS

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


class Parser(argparse.ArgumentParser):
    """Parse arguments, and report errors in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error in one line to standard error, and exit with status EXIT_USAGE."""
        name = self.prog.rsplit(" ", 1)[-1]
        print(f"{name}: error: {message}; --help lists the arguments", file=sys.stderr, flush=True)
        sys.exit(EXIT_USAGE)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select a trained network: --run-dir or --model (one is required), and --trust-model."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--run-dir", type=path_argument, metavar="DIR", help="directory of a run with an export")
    which.add_argument("--model", type=path_argument, metavar="PATH", help=f"export: {KINDS}")
    parser.add_argument(
        "--trust-model",
        action="store_true",
        help="also load a SavedModel, or a .keras file with classes that no network of this project has. RISK: it can "
        "read and write all of your files; only for a run whose code and packages you trust",
    )


def quiet_tensorflow() -> None:
    """Set TensorFlow's log level to errors, unless the environment sets it. Call this before TensorFlow is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def report_error(command: str, error: ReportedError, status: int) -> int:
    """Print an error in one line to standard error, after the name `command`; return `status` unchanged."""
    print(f"{command}: error: {error}", file=sys.stderr, flush=True)
    return status

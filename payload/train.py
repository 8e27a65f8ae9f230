"""Train one recipe: `python -m payload.train --recipe digits --run-dir DIR`, on every rank under horovodrun, or alone.

SIGTERM, SIGINT or a file named `stop` in the run's directory stop the run after the current step, with a checkpoint to
resume from. Exit status: 0: completed; 1: failed, with a one-line reason; 2: invalid arguments; 143: stopped.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from agent.errors import ReportedError
from agent.files.safe_read import is_listed
from payload.data.bucket_download import local_directory
from payload.data.dataset import Dataset
from payload.data.open_dataset import open_dataset
from payload.model_arguments import EXIT_FAILED, EXIT_USAGE, report_error
from payload.recipes.train_config import TrainConfig
from payload.settings import SettingError
from payload.training.export.onnx_conversion import require_converter
from payload.training.rank_setup import set_up_rank
from payload.training.reporting.result_file import RESULT_FILE, Provenance

EXIT_STOPPED: Final = 128 + signal.SIGTERM
STOP_FILE: Final = "stop"
STOP_FILE_INTERVAL_S: Final = 1.0
"""Time between checks for the stop file on the shared file system."""
ROOT_FIRST_S: Final = 5.0
"""Delay before ranks other than 0 report an early error. If rank 0 has it too, the launcher kills them first."""


class StopRequest:
    """Watch for SIGTERM, SIGINT and the stop file. A second signal terminates the process immediately."""

    def __init__(self, run_dir: Path, *, watch_file: bool) -> None:
        """Install handlers of both signals. `watch_file`: also check for the stop file, which one rank should do."""
        self._path = run_dir / STOP_FILE
        self._watch_file = watch_file
        self._next_look = 0.0
        self._requested = False
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        """Return whether a stop has been requested on this rank. The stop file is checked at most once a second."""
        now = time.monotonic()
        if self._watch_file and not self._requested and now >= self._next_look:
            self._next_look = now + STOP_FILE_INTERVAL_S
            self._requested = is_listed(self._path)  # listing sees files that another node has written
        return self._requested


def main(argv: Sequence[str]) -> int:
    """Train as one rank of a run; return the exit status.

    The status is 0 after the last epoch, EXIT_STOPPED if the run was asked to stop, EXIT_USAGE for an invalid setting,
    and EXIT_FAILED after any other error. Rank 0 prints errors. Other ranks print an error that occurs before training,
    after a delay, and the loss of a rank.
    """
    started = time.time()
    rank = int(os.environ.get("HOROVOD_RANK", "0"))
    try:
        config = TrainConfig.from_argv(argv, ranks=int(os.environ.get("HOROVOD_SIZE", "1")))
        stop = StopRequest(config.run_dir, watch_file=rank == 0)
        rank_setup = set_up_rank(config.settings, os.environ)
        data = _prepare(config)
    except SettingError as error:
        return _fail_early(error, rank, EXIT_USAGE)
    except ReportedError as error:
        return _fail_early(error, rank, EXIT_FAILED)
    if rank == 0:
        for line in data.damage:
            print(f"payload.data: skipped: {line}", file=sys.stderr, flush=True)
    provenance = Provenance(
        payload_hash=os.environ.get("DEEPCDK_PAYLOAD_HASH"), git_commit=os.environ.get("DEEPCDK_GIT_COMMIT")
    )
    trainer = _import_trainer()
    try:
        outcome = trainer.train_and_evaluate(
            config,
            data,
            provenance=provenance,
            host=os.environ.get("HOROVOD_HOSTNAME"),
            started=started,
            stop_requested=stop,
            rank_setup=rank_setup,
        )
    except ReportedError as error:
        # Rank 0 reports errors that all ranks know. Each remaining rank reports a lost rank, because it may be rank 0.
        if rank == 0 or isinstance(error, ConnectionError):
            report_error("payload.train", error, EXIT_FAILED)
        return EXIT_USAGE if isinstance(error, SettingError) else EXIT_FAILED
    finally:
        trainer.distributed.leave()
    return EXIT_STOPPED if outcome.stopped else 0


def _prepare(config: TrainConfig) -> Dataset:
    """Open and return the data, after checking the run directory and the packages for --export-onnx.

    Data in a bucket are copied to this node's disk first, which may take long. All this happens before the slow import
    of TensorFlow, so that errors are reported early. Raises ReportedError, also for the directory of a completed run.
    """
    if (config.run_dir / RESULT_FILE).exists():
        raise ReportedError(f"{config.run_dir} already contains the result of a completed run; give a new --run-dir")
    if config.run_dir.exists() and not config.run_dir.is_dir():
        raise ReportedError(f"{config.run_dir} is not a directory; give a directory as --run-dir")
    if config.settings.export_onnx:
        require_converter()
    if not config.data_dir:
        return open_dataset(config.settings, None)
    root = Path(config.settings.local_dir) if config.settings.local_dir else None
    return open_dataset(config.settings, local_directory(config.data_dir, root=root))


def _import_trainer() -> Any:
    """Import TensorFlow, Keras and Horovod; return the trainer. Takes 4.3 s instead of 6.2 s of one core for each rank.

    Keras imports scikit-learn, and SciPy's statistics with it, for wrappers that are not used here. Hiding it
    temporarily has the same effect as if it were not installed. Garbage collection is disabled meanwhile, because
    modules leave nothing to free.
    """
    hidden = "sklearn" not in sys.modules
    if hidden:
        sys.modules["sklearn"] = None  # type: ignore[assignment]  # documented: makes its import an ImportError
    gc.disable()
    try:
        return importlib.import_module(".training.trainer", __package__)
    finally:
        gc.enable()
        gc.freeze()
        if hidden:
            del sys.modules["sklearn"]


def _fail_early(error: ReportedError, rank: int, status: int) -> int:
    if rank:
        time.sleep(ROOT_FIRST_S)
    return report_error("payload.train", error, status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

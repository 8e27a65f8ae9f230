"""Train as `payload.train` does, except that one rank disappears at its fourth step; see test_dying.py.

Usage: dying_program.py RANK SIGNAL CHECKPOINT FLAG...
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from payload import train
from payload.data.dataset import Batch
from payload.training import epoch
from payload.training.epoch import TrainingContext
from payload.training.progress import StepSums


def meet(directory: Path) -> None:
    """Wait until all ranks have imported TensorFlow, which can take longer than the timeout for meeting ranks."""
    directory.joinpath(f"here-{os.environ['HOROVOD_RANK']}").touch()
    while len(list(directory.glob("here-*"))) < int(os.environ["HOROVOD_SIZE"]):
        time.sleep(0.01)


def main() -> int:
    rank, number, checkpoint, *argv = sys.argv[1:]
    meet(Path(checkpoint).parents[1])
    if os.environ["HOROVOD_RANK"] == rank:
        step, left = epoch._step, iter(range(3))

        def last(context: TrainingContext, batch: Batch, rate: float, stop: bool, own_s: float) -> StepSums:
            if next(left, None) is None:
                while not Path(checkpoint).exists():  # rank 0 writes it in parallel to its steps
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.Signals[number])
            return step(context, batch, rate, stop, own_s)

        epoch._step = last
    return train.main(argv)


if __name__ == "__main__":
    sys.exit(main())

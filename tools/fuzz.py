"""Feed the readers of foreign data with hostile bytes for as long as is asked: `make fuzz MINUTES=60`.

The tests of tests/fuzz run again and again, each time with other examples. It stops at the first failure, whose
example the test prints, with the seed that finds it again.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
EXAMPLES: Final = 500
"""Of each test in one round, which takes some minutes."""
SEEDS: Final = 2**32


def command(seed: int, words: Sequence[str]) -> list[str]:
    """Return the command of one round."""
    return [sys.executable, "-m", "pytest", "-q", "-x", "tests/fuzz", f"--hypothesis-seed={seed}", *words]


def search(minutes: float, run: Callable[[int], int], report: Callable[[str], None]) -> int:
    """Run rounds until the time is over or one fails; return the status of the last one. At least one is run."""
    began = time.monotonic()
    first = random.SystemRandom().randrange(SEEDS)
    rounds = 0
    while True:
        seed = (first + rounds) % SEEDS  # counted, not drawn again: drawn seeds repeat
        status = run(seed)
        rounds += 1
        took = (time.monotonic() - began) / 60
        if status != 0:
            report(f"round {rounds} failed after {took:.0f} minutes; again: DEEPCDK_EXAMPLES={EXAMPLES} "
                   f"{' '.join(command(seed, ())[1:])}")  # fmt: skip
            return status
        if took >= minutes:
            report(f"{rounds} rounds of {EXAMPLES} examples of each test in {took:.0f} minutes, and nothing found")
            return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="tools.fuzz", description="Feed the readers of foreign data hostile bytes.")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; a round that has begun is finished")
    options, words = parser.parse_known_args(argv)  # others are for pytest, such as -k manifest
    environment = {**os.environ, "DEEPCDK_EXAMPLES": str(EXAMPLES)}

    def run(seed: int) -> int:
        return subprocess.run(command(seed, words), cwd=ROOT, env=environment, check=False).returncode

    return search(options.minutes, run, lambda text: print(text, flush=True))


if __name__ == "__main__":
    sys.exit(main())

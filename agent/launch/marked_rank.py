"""The parent of one rank of a process group: forward what it writes in marked lines, and report its end.

    RANK=3 python -m agent.launch.marked_rank COMMAND...    # by agent.launch.host_ranks, or by torchrun

Each line goes out as Horovod's launcher writes it, behind `[RANK]<stdout>:` or `[RANK]<stderr>:`. The last one is this
process's own, and says with which status the rank ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from agent.launch.mpi_rank import end_alike, forward_output, write
from agent.spec.run import RANK_VARIABLE

_END: Final = "[launcher] rank {rank} ended: {status}"
_ENDED: Final = re.compile(rb"^\[launcher\] rank (\d+) ended: (-?\d+)\n")


def parse_end(line: bytes) -> tuple[int, int] | None:
    """Return the rank and the status of which a line reports the end; None for any other line."""
    found = _ENDED.match(line)
    return (int(found[1]), int(found[2])) if found else None


def main(argv: Sequence[str]) -> int:
    """Run the rank; return its status, or end by the signal that ended it."""
    rank = os.environ["RANK"]
    environment = {**os.environ, RANK_VARIABLE: rank}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        # torchrun signals this process, of which the rank is a child; a stopped run's signal is sent to the rank.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: process.send_signal(number))
        out = sys.stdout.fileno()
        try:
            status = forward_output(process, rank, out)
            write(out, [f"{_END.format(rank=rank, status=status)}\n".encode()])
        except OSError:  # the reader has gone: nothing else would stop the rank
            process.kill()
            return 1
    return end_alike(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

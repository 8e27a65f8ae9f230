"""Start the ranks of one host of an elastic run, and end them when the launcher on the master has gone.

    python -m agent.launch.elastic.host RUN_DIRECTORY NAME ADDRESS FIRST SLOTS    # over SSH, by the launcher

NAME and ADDRESS are the host's own, FIRST is the number of its first rank. As `agent.launch.host_ranks`, but for a host
that may be none of the run's spec, since it joined later.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.launch.host_ranks import END_GRACE_S, HostRanks, rank_words, start
from agent.launch.rank import local_interface_with
from agent.remote.processes import signal_run
from agent.spec.elastic import MEMBER_VARIABLE
from agent.spec.run import RunSpec


def variables(name: str, first: int, slots: int, slot: int, interface: str) -> dict[str, str]:
    """Return the variables of one rank, by its number on the host."""
    member = str(first + slot)
    place = {
        "RANK": member,
        MEMBER_VARIABLE: member,
        "HOROVOD_HOSTNAME": name,
        "HOROVOD_LOCAL_RANK": str(slot),
        "HOROVOD_LOCAL_SIZE": str(slots),
    }
    return {**place, "HOROVOD_GLOO_IFACE": interface} if interface else place


class ElasticHostRanks(HostRanks):
    """The ranks of a host; where the launcher has lost the host, they end at once.

    By SIGTERM they would have all others stop with them, which go on without them instead.
    """

    def _end(self) -> None:
        runs, run = self._spec.runs_root, self._spec.run_id
        signal_run(runs, run_id=run, others=False, ranks_only=False, number=signal.SIGKILL, wait_s=END_GRACE_S)


def main(argv: Sequence[str]) -> int:
    """Start this host's ranks and wait for their end."""
    directory, name, address, first, slots = argv
    spec = RunSpec.from_json((Path(directory) / "spec.json").read_text(encoding="utf-8"))
    words, interface = rank_words(sys.executable, spec), local_interface_with(address)
    started = [start(words, variables(name, int(first), int(slots), slot, interface)) for slot in range(int(slots))]
    return ElasticHostRanks(spec, started).wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The launchers that start a run's ranks, and what they tell each rank. Pure.

`horovod` is Horovod's own. `torchrun` is PyTorch's, one on each host, and sets these variables and more by itself
(PyTorch, "torchrun", Environment Variables). `plain` sets these alone: PyTorch's `env://`, JAX and programs with
sockets of their own need no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent.spec.nodes import Node

HOROVOD: Final = "horovod"
TORCHRUN: Final = "torchrun"
PLAIN: Final = "plain"
LAUNCHERS: Final = (HOROVOD, TORCHRUN, PLAIN)
MASTER_PORT: Final = 29500
"""Where the ranks meet on the first host. PyTorch's own default; below the ports that Linux gives to connections, so
that none of these has it, and among those that workers open to each other."""
PLACE_VARIABLES: Final = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
"""What says who a rank is and where the ranks meet: a user cannot give them."""
REPORTING: Final = ("/bin/sh", "-c", 'trap : INT TERM; "$@"; exit $?', "rank")
"""A shell that stays as the rank's parent over Gloo. Of a command that a signal ended `ssh` reports only 255, as of a
connection that broke; a shell returns 128 and the signal's number. Its traps keep it alive while the rank ends itself.
It passes no signal on: who asks a rank to end asks its child.
"""


def places(hosts: Sequence[Node], index: int) -> list[dict[str, str]]:
    """Return the variables of each rank of the host with this index: who it is, and where the ranks meet."""
    first, host = sum(each.slots for each in hosts[:index]), hosts[index]
    common = {
        "WORLD_SIZE": str(sum(each.slots for each in hosts)),
        "LOCAL_WORLD_SIZE": str(host.slots),
        "NODE_RANK": str(index),
        "MASTER_ADDR": hosts[0].address,
        "MASTER_PORT": str(MASTER_PORT),
    }
    return [{"RANK": str(first + slot), "LOCAL_RANK": str(slot), **common} for slot in range(host.slots)]

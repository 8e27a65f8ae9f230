"""The launchers that start a run's ranks, and the variables and words by which each rank knows its place. Pure.

`horovod` is Horovod's own. `torchrun` is PyTorch's, one on each host, and sets these variables and more by itself
(PyTorch, "torchrun", Environment Variables). `plain` sets these and TF_CONFIG, which TensorFlow's multi-worker strategy
reads. PyTorch's `env://`, JAX and programs with sockets of their own need no more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from agent.spec.nodes import Node

HOROVOD: Final = "horovod"
TORCHRUN: Final = "torchrun"
PLAIN: Final = "plain"
LAUNCHERS: Final = (HOROVOD, TORCHRUN, PLAIN)
MASTER_PORT: Final = 29500
"""Where the ranks meet on the first host. PyTorch's own default; below the ports that Linux gives to connections, so
that none of these has it, and among those that workers open to each other."""
AUTO: Final = "auto"
REQUIRED: Final = "require"
APART: Final = "no"
TOGETHER: Final = (AUTO, REQUIRED, APART)
"""What holds of ranks that do not train together: auto warns, require stops the run, and no means that it is wanted."""
PLACE_VARIABLES: Final = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
"""What says who a rank is and where the ranks meet: a user cannot give them."""
TF_CONFIG: Final = "TF_CONFIG"
"""TensorFlow's description of the cluster: each rank's address, and which of them this rank is."""
PLACEHOLDERS: Final = (
    *("rank", "world_size", "local_rank", "local_world_size", "node_rank", "num_nodes"),
    *("node_name", "node_names", "node_addresses", "master_addr", "master_port"),
)
"""Names that are expanded in the words of an entry, in braces."""
_PLACEHOLDER: Final = re.compile(rf"\{{\{{({'|'.join(PLACEHOLDERS)})\}}\}}|(?<![$\\])\{{({'|'.join(PLACEHOLDERS)})\}}")
RANK_PARENT: Final = ("-m", "agent.launch.rank_parent")
"""The words behind Python's in the command line of a rank's parent. It alone is asked to stop a rank."""


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


def tf_config(hosts: Sequence[Node], rank: int) -> str:
    """Return TF_CONFIG for a rank. Each rank has a port of its own, and none is MASTER_PORT."""
    workers = [f"{host.address}:{MASTER_PORT + 1 + slot}" for host in hosts for slot in range(host.slots)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


def node_variables(hosts: Sequence[Node], host: Node | None) -> dict[str, str]:
    """Return the variables that name the nodes of a run, in the order of their ranks, and the rank's own node."""
    known = {"DEEPCDK_NODE": host.name, "DEEPCDK_NODE_RANK": str(list(hosts).index(host))} if host else {}
    names, addresses = (",".join(values) for values in zip(*((h.name, h.address) for h in hosts), strict=True))
    return {"DEEPCDK_NODES": names, "DEEPCDK_NODE_ADDRESSES": addresses, **known}


def place_values(hosts: Sequence[Node], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the value of each placeholder for a rank with these variables; none for what the launcher has not set."""
    values = {
        "rank": environ.get("HOROVOD_RANK", environ.get("RANK")),
        "world_size": environ.get("HOROVOD_SIZE", environ.get("WORLD_SIZE")),
        "local_rank": environ.get("HOROVOD_LOCAL_RANK", environ.get("LOCAL_RANK")),
        "local_world_size": environ.get("HOROVOD_LOCAL_SIZE", environ.get("LOCAL_WORLD_SIZE")),
        "node_rank": environ.get("DEEPCDK_NODE_RANK"),
        "num_nodes": str(len(hosts)),
        "node_name": environ.get("DEEPCDK_NODE"),
        "node_names": environ.get("DEEPCDK_NODES"),
        "node_addresses": environ.get("DEEPCDK_NODE_ADDRESSES"),
        "master_addr": hosts[0].address,
        "master_port": str(MASTER_PORT),
    }
    return {name: value for name, value in values.items() if value is not None}


def expand(word: str, values: Mapping[str, str]) -> str:
    """Expand `{rank}` and the other placeholders in a word; `{{rank}}` becomes `{rank}`.

    All other braces stay, such as JSON, `${rank}` and `{step}`.
    """

    def value(found: re.Match[str]) -> str:
        return f"{{{found[1]}}}" if found[1] else values.get(found[2], found[0])

    return _PLACEHOLDER.sub(value, word)


def has_placeholder(word: str) -> bool:
    """Return whether a word has a placeholder that is expanded."""
    return any(found[2] for found in _PLACEHOLDER.finditer(word))

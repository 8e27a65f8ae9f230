"""The launchers that start a run's ranks, and the variables and placeholders with a rank's place in the run. Pure.

`horovod` is Horovod's launcher. `torchrun` is PyTorch's: it runs once per host and sets these and more variables itself
(PyTorch, "torchrun", Environment Variables). `plain` sets these variables and TF_CONFIG, for TensorFlow's multi-worker
strategy. They are sufficient for PyTorch's `env://`, JAX and programs with their own sockets.
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
"""The ranks' rendezvous port on the first host: PyTorch's default. It is below Linux's ephemeral ports, so no
connection uses it, and within the ports that are open between workers."""
AUTO: Final = "auto"
REQUIRED: Final = "require"
APART: Final = "no"
TOGETHER: Final = (AUTO, REQUIRED, APART)
"""Reactions to ranks that do not train together: auto warns, require stops the run, no means that it is intended."""
PLACE_VARIABLES: Final = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
"""Variables with a rank's place in the run and the ranks' rendezvous address. Users cannot set them."""
TF_CONFIG: Final = "TF_CONFIG"
"""TensorFlow's description of the cluster: the address of each rank, and the index of this rank."""
PLACEHOLDERS: Final = (
    *("rank", "world_size", "local_rank", "local_world_size", "node_rank", "num_nodes"),
    *("node_name", "node_names", "node_addresses", "master_addr", "master_port"),
)
"""Names that are expanded, in braces, in the words of an entry."""
_PLACEHOLDER: Final = re.compile(rf"\{{\{{({'|'.join(PLACEHOLDERS)})\}}\}}|(?<![$\\])\{{({'|'.join(PLACEHOLDERS)})\}}")
RANK_PARENT: Final = ("-m", "agent.launch.rank_parent")
"""The arguments of Python in the command line of a rank's parent process. Only the parent is asked to stop a rank."""


def places(hosts: Sequence[Node], index: int) -> list[dict[str, str]]:
    """Return a dict for each rank on the host with this index: PLACE_VARIABLES without GROUP_RANK, and their values."""
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
    """Return the value of TF_CONFIG for a rank, as JSON. Each rank has its own port, different from MASTER_PORT."""
    workers = [f"{host.address}:{MASTER_PORT + 1 + slot}" for host in hosts for slot in range(host.slots)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


def node_variables(hosts: Sequence[Node], host: Node | None) -> dict[str, str]:
    """Return the variables with the names and addresses of a run's nodes, separated by commas, in the order of `hosts`.

    If the rank's own node `host` is given, the variables with its name and index are added.
    """
    known = {"DEEPCDK_NODE": host.name, "DEEPCDK_NODE_RANK": str(list(hosts).index(host))} if host else {}
    names, addresses = (",".join(values) for values in zip(*((h.name, h.address) for h in hosts), strict=True))
    return {"DEEPCDK_NODES": names, "DEEPCDK_NODE_ADDRESSES": addresses, **known}


def place_values(hosts: Sequence[Node], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the placeholders, by name, for a rank with the variables `environ`.

    A placeholder is left out if the launcher has not set its variable.
    """
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
    """Replace `{rank}` and the other placeholders in a word by their values; `{{rank}}` becomes `{rank}`.

    All other braces are kept, such as JSON, `${rank}`, `{step}`, and placeholders that `values` lacks.
    """

    def value(found: re.Match[str]) -> str:
        return f"{{{found[1]}}}" if found[1] else values.get(found[2], found[0])

    return _PLACEHOLDER.sub(value, word)


def has_placeholder(word: str) -> bool:
    """Return whether a word contains a placeholder that would be expanded."""
    return any(found[2] for found in _PLACEHOLDER.finditer(word))

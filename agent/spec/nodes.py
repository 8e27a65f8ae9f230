"""The nodes of the cluster as the registry lists them: field rules, the parser, and the choice of hosts for a run.

The master makes the nodes file from the registry on the shared file system, which every worker can write to. Its fields
end up in SSH's configuration, shell command lines and file names, so each rule allows only plain characters.
`stacks/scripts/node_registry.sh` uses the same patterns; a test compares them.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from agent.errors import SpecError
from agent.spec import node_kinds

NODES_PATH: Final = "/opt/deeplearning/nodes"
NODE_PYTHON: Final = "/opt/deepcdk/bin/python3"
MASTERS_TREES: Final = ".deepcdk/trees"
"""On the master, in the login user's home: code that the master runs. Ranks cannot write to the master's own disk."""
MASTER_NAME: Final = "deeplearning-master"
WORKER_PREFIX: Final = "deeplearning-worker"
LEAVING: Final = ".cluster/leaving"
"""On the shared file system: termination notices of nodes, one file per instance ID."""
RANK_USER: Final = "deepcdk-rank"
"""The user of ranks on all nodes (`agent.remote.rank_user`)."""
RANK_UID: Final = 60900
"""Between the ids of people and the ids that systemd assigns to services. The same as in boot.sh."""
RUN_GROUP: Final = "deepcdk-run"
RUN_GIDS: Final = range(60901, 61000)
"""Ids of the groups deepcdk-run1 to deepcdk-run99 on the master (`stacks/scripts/master_setup.sh`), one per live run.

All ranks have the same user. The groups keep the ranks of one run from the files of other runs. A worker's ranks have
the group of the run on that worker (`stacks/scripts/rank_leftovers.sh`). No run gets the last group.
"""
RANK_HOME: Final = "/home/deepcdk-rank/files"
"""The value of `HOME` for ranks."""
RANK_TEMPORARY: Final = "tmp"
"""Directory in RANK_HOME for the ranks' temporary files."""
REMEDY: Final = "`fab status --load` shows the instance that has not joined, `fab replace INSTANCE_ID` replaces it"
MAX_SLOTS: Final = 1024
SHOWN: Final = 60
"""Maximum number of characters of an invalid value in a message."""
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule for a field: the whole text must match the pattern, which means the same in POSIX extended syntax."""

    pattern: str
    words: str
    """The rule in words, for a message."""

    def fits(self, text: str) -> bool:
        """Return whether the whole text matches the pattern."""
        return re.fullmatch(self.pattern, text) is not None


RULES: Final = {
    "name": Rule(
        pattern="deeplearning-(master|worker[1-9][0-9]{0,3})",
        words="deeplearning-master or deeplearning-workerN, N from 1 to 9999",
    ),
    "address": Rule(pattern=rf"({_OCTET}\.){{3}}{_OCTET}", words="an IPv4 address such as 10.0.64.5"),
    "instance_id": Rule(pattern="i-([0-9a-f]{8}|[0-9a-f]{17})", words="i- and 8 or 17 hexadecimal digits"),
    "slots": Rule(
        pattern="[1-9][0-9]{0,2}|10([01][0-9]|2[0-4])",
        words=f"a whole number from 1 to {MAX_SLOTS}",
    ),
    "interface": Rule(
        pattern="[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}",
        words="a network interface: 1 to 15 letters, digits, _, . and -, not starting with . or -",
    ),
    "zone": Rule(
        pattern="[a-z]{2,8}(-[a-z]{2,12}){1,3}-[0-9]{1,2}([a-z]|(-[a-z0-9]{1,8}){1,4})",
        words="a zone such as us-east-1a or us-west-2-lax-1a",
    ),
    "kind": Rule(pattern=node_kinds.PATTERN, words=node_kinds.WORDS),
}
"""The rules by field name of `Node`."""


def violation(field: str, value: object) -> str:
    """Return why a value is invalid for a field of `Node`, as `address = 'x': must be ...`, or "" if it is valid.

    The value is shown as `escaped` returns it, because the message goes to terminals and logs.
    """
    rule = RULES[field]
    # To Python, True is an int. The text "4" is not a number of slots.
    text = str(value) if type(value) is (int if field == "slots" else str) else None
    return "" if text is not None and rule.fits(text) else f"{field} = {escaped(value)}: must be {rule.words}"


def escaped(value: object, most: int = SHOWN) -> str:
    """Return an untrusted value in printable form: quoted, in ASCII. It is cut after `most` characters, with `...`."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[:most]}..."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A live node, as the cluster's registry lists it. Each field follows its rule in `RULES`."""

    name: str
    """Name within the cluster, such as deeplearning-worker3. /etc/hosts on every node has it."""
    address: str
    """Private IPv4 address."""
    instance_id: str
    slots: int
    """Number of ranks that the node takes: one per GPU, at least one."""
    interface: str
    """Network interface that carries the address, such as ens5."""
    zone: str
    """Availability zone."""
    kind: str
    """What programs are built for on this node, as in `agent.spec.node_kinds`."""

    def __post_init__(self) -> None:
        for field in RULES:
            if wrong := violation(field, getattr(self, field)):
                raise SpecError(wrong)

    @property
    def worker_index(self) -> int | None:
        """Return N of deeplearning-workerN, or None if the node is not a worker."""
        found = re.fullmatch(rf"{WORKER_PREFIX}([0-9]+)", self.name)
        return int(found[1]) if found else None


def parse_nodes(text: str, warn: Callable[[str], None]) -> tuple[Node, ...]:
    """Parse the nodes file: one line per live node, `NAME IP INSTANCE_ID SLOTS INTERFACE ZONE KIND`.

    A node is left out if its line breaks a rule. Nodes with the same name, address or instance ID are all left out,
    because it is unknown which is right. The master's line is kept unless another line has the master's name. `warn`
    receives a sentence for each line that is left out. It also receives each comment, because the master's registry
    reports in comments which entries it left out itself.
    """
    found: list[tuple[int, Node]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("#"):
            comment = escaped(line.lstrip("# "), 200)
            warn(f"line {number} of {NODES_PATH} on the master reports {comment}; {REMEDY}")
        elif line:
            try:
                found.append((number, _parse_node(line)))
            except SpecError as error:
                warn(_left_out(number, error))
    claims = Counter((field, value) for _, node in found for field, value in _claimed(node))
    nodes = []
    for number, node in found:
        shared = [field for field, value in _claimed(node) if claims[field, value] > 1]
        if "name" in shared or (shared and node.name != MASTER_NAME):
            warn(_left_out(number, f"another line has the same {shared[0]} = {getattr(node, shared[0])}"))
        else:
            nodes.append(node)
    return tuple(nodes)


def _parse_node(line: str) -> Node:
    words = line.split(" ")
    if len(words) != 7:
        raise SpecError(f"{escaped(line)}: must be NAME IP INSTANCE_ID SLOTS INTERFACE ZONE KIND")
    name, address, instance_id, slots, interface, zone, kind = words
    if not RULES["slots"].fits(slots):  # int() accepts more than the rule
        raise SpecError(violation("slots", slots))
    return Node(
        name=name,
        address=address,
        instance_id=instance_id,
        slots=int(slots),
        interface=interface,
        zone=zone,
        kind=kind,
    )


def _claimed(node: Node) -> tuple[tuple[str, str], ...]:
    """Return the fields that must be unique among live nodes, with their values."""
    return ("name", node.name), ("address", node.address), ("instance_id", node.instance_id)


def _left_out(number: int, why: object) -> str:
    return f"line {number} of {NODES_PATH} on the master is ignored, and its node is not used: {why}; {REMEDY}"


def workers(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the workers among the nodes, sorted by index. The master is left out."""
    indexed = [(node.worker_index, node) for node in nodes]
    return tuple(node for _, node in sorted(((i, n) for i, n in indexed if i is not None), key=lambda pair: pair[0]))


def choose_hosts(nodes: Sequence[Node], count: int) -> tuple[Node, ...]:
    """Return the first `count` workers by index. Ranks fill the hosts in this order.

    Raises SpecError if there are fewer workers, or if `count` is less than 1.
    """
    found = workers(nodes)
    if count < 1:
        raise SpecError(f"{count} nodes requested; a run needs at least 1")
    if len(found) < count:
        listed = ", ".join(node.name for node in found) or "none"
        few = f"{count} nodes requested, but {len(found)} ready ({listed})"
        raise SpecError(f"{few}; add workers with `fab scale`")
    return found[:count]


def meeting_interface(nodes: Sequence[Node]) -> str:
    """Return the name of the master's network interface, for Horovod's launcher there; "" without a master.

    With "", Horovod probes all hosts. A rank finds its own node's interface by the node's address, because names
    differ between instance types.
    """
    return next((node.interface for node in nodes if node.name == MASTER_NAME), "")


def common_network(nodes: Sequence[Node]) -> str:
    """Return the smallest network that contains all nodes, as 10.0.0.0/20; "" without nodes."""
    numbers = [int(ipaddress.IPv4Address(node.address)) for node in nodes]
    differing = (min(numbers) ^ max(numbers)).bit_length() if numbers else 0
    return str(ipaddress.IPv4Network((min(numbers), 32 - differing), strict=False)) if numbers else ""

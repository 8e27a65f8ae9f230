"""The nodes of the cluster as its registry lists them: the rules for each field, the parser, and the choice of hosts.

The nodes file on the master is made from the registry on the shared file system, in which every worker can write. From
there these texts reach SSH's configuration, shells' command lines and file names, so each rule allows plain characters
only. `stacks/scripts/registry.sh` applies the same patterns; a test compares the two.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from agent.errors import SpecError
from agent.spec import kinds

NODES_PATH: Final = "/opt/deeplearning/nodes"
NODE_PYTHON: Final = "/opt/deepcdk/bin/python3"
MASTERS_TREES: Final = ".deepcdk/trees"
"""Below the login user's home on the master: what the master itself runs lies on its own disk, where no rank writes."""
MASTER_NAME: Final = "deeplearning-master"
WORKER_PREFIX: Final = "deeplearning-worker"
LEAVING: Final = ".cluster/leaving"
"""On the shared file system: what a node that is about to end has read of the reason, by its instance's id."""
RANK_USER: Final = "deepcdk-rank"
"""The user that ranks run as, on all nodes (`agent.remote.rank_user`)."""
RANK_UID: Final = 60900
"""Between the numbers that systems give to people and those that systemd gives to services. As in node.sh."""
RUN_GROUP: Final = "deepcdk-run"
RUN_GIDS: Final = range(60901, 61000)
"""Groups deepcdk-run1 to deepcdk-run99 of the master (`stacks/scripts/shared.sh`), one for each live run.

They keep the ranks of a run, which all have the same user, from the files of the others. A worker's ranks have the
group of the run that is there (`stacks/scripts/leftovers.sh`). No run gets the last one.
"""
RANK_HOME: Final = "/home/deepcdk-rank/files"
"""What `HOME` is to ranks."""
RANK_TEMPORARY: Final = "tmp"
"""Directory of their temporary files in there."""
REMEDY: Final = "`fab status --load` shows the instance that has not joined, `fab replace INSTANCE_ID` replaces it"
MOST_SLOTS: Final = 1024
SHOWN: Final = 60
"""Characters of a refused value that a message shows."""
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: the whole text must match the pattern, which POSIX's extended syntax reads alike."""

    pattern: str
    words: str
    """What the text must be, for a message."""

    def fits(self, text: str) -> bool:
        """Return whether a text follows the rule."""
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
        words=f"a whole number from 1 to {MOST_SLOTS}",
    ),
    "interface": Rule(
        pattern="[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}",
        words="a network interface: 1 to 15 letters, digits, _, . and -, the first neither . nor -",
    ),
    "zone": Rule(
        pattern="[a-z]{2,8}(-[a-z]{2,12}){1,3}-[0-9]{1,2}([a-z]|(-[a-z0-9]{1,8}){1,4})",
        words="a zone such as us-east-1a or us-west-2-lax-1a",
    ),
    "kind": Rule(pattern=kinds.PATTERN, words=kinds.WORDS),
}
"""By the fields of `Node`."""


def broken(field: str, value: object) -> str:
    """Return why a field cannot have this value, as `address = 'x': must be ...`; "" where it can.

    The value appears in ASCII, with control characters escaped, and cut: the message goes to terminals and logs.
    """
    rule = RULES[field]
    # True is an int to Python, and "4" no number of slots.
    text = str(value) if type(value) is (int if field == "slots" else str) else None
    return "" if text is not None and rule.fits(text) else f"{field} = {escaped(value)}: must be {rule.words}"


def escaped(value: object, most: int = SHOWN) -> str:
    """Return a foreign value as it may be printed: quoted, in ASCII, cut after `most` characters."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[:most]}..."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One live node, as the cluster's registry lists it. Each field follows its rule in `RULES`."""

    name: str
    """Name within the cluster, such as deeplearning-worker3; in /etc/hosts on every node."""
    address: str
    """Private IPv4 address."""
    instance_id: str
    slots: int
    """Ranks that it takes: one per GPU, at least one."""
    interface: str
    """Network interface that carries the address, such as ens5."""
    zone: str
    """Availability zone."""
    kind: str
    """What programs are built for there, of `agent.spec.kinds`."""

    def __post_init__(self) -> None:
        for field in RULES:
            if wrong := broken(field, getattr(self, field)):
                raise SpecError(wrong)

    @property
    def worker_index(self) -> int | None:
        """Return N of deeplearning-workerN, or None for a node that is no worker."""
        found = re.fullmatch(rf"{WORKER_PREFIX}([0-9]+)", self.name)
        return int(found[1]) if found else None


def parse_nodes(text: str, warn: Callable[[str], None]) -> tuple[Node, ...]:
    """Parse the nodes file: one line per live node, `NAME IP INSTANCE_ID SLOTS INTERFACE ZONE KIND`.

    A line that breaks a rule leaves out its node, and so do lines that claim the
    same name, address or instance id: nothing tells which of them is right. Only the master's own line wins over a
    worker's. `warn` gets a sentence for each; so it does for each comment, in which the master's registry says what it
    left out itself.
    """
    found: list[tuple[int, Node]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("#"):
            comment = escaped(line.lstrip("# "), 200)
            warn(f"line {number} of {NODES_PATH} on the master says {comment}; {REMEDY}")
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
    if not RULES["slots"].fits(slots):  # int() would take more than the rule does
        raise SpecError(broken("slots", slots))
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
    """Return the fields that one live node alone can have, with their values."""
    return ("name", node.name), ("address", node.address), ("instance_id", node.instance_id)


def _left_out(number: int, why: object) -> str:
    return f"line {number} of {NODES_PATH} on the master is left out, and its node takes no part: {why}; {REMEDY}"


def workers(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the workers among the nodes, by index."""
    indexed = [(node.worker_index, node) for node in nodes]
    return tuple(node for _, node in sorted(((i, n) for i, n in indexed if i is not None), key=lambda pair: pair[0]))


def choose_hosts(nodes: Sequence[Node], count: int) -> tuple[Node, ...]:
    """Return the first `count` workers by index: ranks fill host by host in this order.

    Raises SpecError when fewer are there.
    """
    found = workers(nodes)
    if count < 1:
        raise SpecError(f"{count} nodes wanted; a run needs at least 1")
    if len(found) < count:
        listed = ", ".join(node.name for node in found) or "none"
        raise SpecError(f"{count} nodes wanted, {len(found)} ready ({listed})")
    return found[:count]


def meeting_interface(nodes: Sequence[Node]) -> str:
    """Return the master's interface, on whose address the ranks meet; "" without a master, and Horovod has to probe.

    Each rank finds its own node's interface by the node's address: names differ between instance types.
    """
    return next((node.interface for node in nodes if node.name == MASTER_NAME), "")


def common_network(nodes: Sequence[Node]) -> str:
    """Return the smallest network that holds all nodes, as 10.0.0.0/20; "" of none."""
    numbers = [int(ipaddress.IPv4Address(node.address)) for node in nodes]
    differing = (min(numbers) ^ max(numbers)).bit_length() if numbers else 0
    return str(ipaddress.IPv4Network((min(numbers), 32 - differing), strict=False)) if numbers else ""

"""The launch of a run as plain values: which hosts, which command, which environment.

Pure, and of the standard library only: the laptop builds it, the master's supervisor carries it out.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent.runs.store import RUN_ID_RULE, is_run_id
from agent.spec import node_rules
from agent.spec.horovod import CONTROLLERS, GLOO, MPI, Knobs

NODES_PATH: Final = "/opt/deeplearning/nodes"
NODE_PYTHON: Final = "/opt/deepcdk/bin/python3"
MASTER_NAME: Final = "deeplearning-master"
WORKER_PREFIX: Final = "deeplearning-worker"
RUN_VARIABLE: Final = "DEEPCDK_RUN"
RUNS_VARIABLE: Final = "DEEPCDK_RUNS"
PROGRAM_FOLDER: Final = "program"
"""Where a pushed tree holds the user's files; the payload's lie in `payload`."""
WORK_FOLDER: Final = "work"
TF_KERAS: Final = "tf-keras==2.21.*"
"""Keras 2 for the runtime's TensorFlow; the two go together by their versions."""


REMEDY: Final = "`fab status --load` shows the instance that has not joined, `fab replace INSTANCE_ID` replaces it"


class SpecError(ValueError):
    """Report a launch that cannot be: a malformed node or spec, or too few nodes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One live node, as the cluster's registry lists it. Each field follows its rule in `agent.spec.node_rules`."""

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

    def __post_init__(self) -> None:
        for field in node_rules.RULES:
            if wrong := node_rules.broken(field, getattr(self, field)):
                raise SpecError(wrong)

    @property
    def worker_index(self) -> int | None:
        """Return N of deeplearning-workerN, or None for a node that is no worker."""
        found = re.fullmatch(rf"{WORKER_PREFIX}([0-9]+)", self.name)
        return int(found[1]) if found else None


def parse_nodes(text: str, tell: Callable[[str], None]) -> tuple[Node, ...]:
    """Parse the nodes file: one line per live node, `NAME IP INSTANCE_ID SLOTS INTERFACE ZONE`.

    A line that breaks a rule leaves out its node, and so do lines that claim the same name, address or instance id:
    nothing tells which of them is right. Only the master's own line wins over a worker's. `tell` gets a sentence
    for each; so it does for each comment, in which the master's registry says what it left out itself.
    """
    found: list[tuple[int, Node]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("#"):
            said = node_rules.escaped(line.lstrip("# "), 200)
            tell(f"line {number} of {NODES_PATH} on the master says {said}; {REMEDY}")
        elif line:
            try:
                found.append((number, _parse_node(line)))
            except SpecError as error:
                tell(_left_out(number, error))
    claims = Counter((field, value) for _, node in found for field, value in _claimed(node))
    nodes = []
    for number, node in found:
        shared = [field for field, value in _claimed(node) if claims[field, value] > 1]
        if "name" in shared or (shared and node.name != MASTER_NAME):
            tell(_left_out(number, f"another line has the same {shared[0]} = {getattr(node, shared[0])}"))
        else:
            nodes.append(node)
    return tuple(nodes)


def _parse_node(line: str) -> Node:
    words = line.split(" ")
    if len(words) != 6:
        raise SpecError(f"{node_rules.escaped(line)}: must be NAME IP INSTANCE_ID SLOTS INTERFACE ZONE")
    name, address, instance_id, slots, interface, zone = words
    if not node_rules.RULES["slots"].fits(slots):  # int() would take more than the rule does
        raise SpecError(node_rules.broken("slots", slots))
    return Node(name=name, address=address, instance_id=instance_id, slots=int(slots), interface=interface, zone=zone)


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


def make_run_id(now: datetime.datetime, recipe: str, token: str) -> str:
    """Return a run's id, sortable by time: `20261120-121314-digits-ab12`."""
    word = re.sub(r"[^a-z0-9]+", "-", recipe.lower()).strip("-") or "run"
    return f"{now:%Y%m%d-%H%M%S}-{word}-{token}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Specify one run: all that the supervisor needs, and all that the record keeps."""

    run_id: str
    efs_mount: str
    """Directory of the shared file system, the same on all nodes."""
    agent: str
    """Name of the pushed tree under payloads/ that holds `agent`: the first 16 hexadecimal digits of its SHA-256. Empty
    in the spec of a run that an older version launched; such a run can be shown and resumed, but not started."""
    command: tuple[str, ...]
    """What each rank runs: `-m MODULE ...` or `SCRIPT.py ...` by its Python, else a program and its arguments."""
    hosts: tuple[Node, ...]
    """In rank order."""
    interface: str = ""
    """The master's network interface, on which the ranks meet; empty: Horovod probes all hosts, which is slow."""
    network: str = ""
    """The network that all nodes are in, for Open MPI; empty: Horovod probes all hosts for interfaces of one name."""
    environment: tuple[tuple[str, str], ...] = ()
    """Further variables for the ranks. They read them from this spec, so that no command line shows them."""
    payload: str = ""
    """Name of the tree that holds `payload`, for a recipe; empty for a program of the user's own."""
    program: str = ""
    """Name of the tree that holds the user's own program; empty for a recipe."""
    requirements: str = ""
    """The program's requirements file, a path within its tree; empty: none."""
    keras: int = 3
    """Version of Keras that `tf.keras` and `keras` mean to the program: 3, or 2 (the package tf-keras)."""
    secrets: tuple[str, ...] = ()
    """Names of further variables, whose values the ranks find in `agent.remote.secret_files`."""
    ranks_per_node: int = 0
    """Ranks that the user asked of each node, to be held against what it has; 0: the slots that it registered."""
    controller: str = GLOO
    """What the ranks meet and, on CPUs, add up over: gloo or mpi; the launch has chosen."""
    knobs: Knobs = dataclasses.field(default_factory=Knobs)
    recipe: str = ""
    """What the run is called: the recipe, or the name of the user's script."""
    git_commit: str = ""
    """Commit of the laptop's project at launch; ends with `+` where files differed from it; empty without git."""
    launcher: tuple[str, ...] = ()
    """A command for the master to run instead of horovodrun; empty: horovodrun."""
    preflight: str = "auto"
    """Which checks go before it. auto: the allreduce is proved once for each set of nodes since their boot; full: each
    time; skip: no check at all."""

    def __post_init__(self) -> None:
        if not is_run_id(self.run_id):
            raise SpecError(f"run_id = {self.run_id!r}: must be {RUN_ID_RULE}")
        for name, tree in (("agent", self.agent), ("payload", self.payload), ("program", self.program)):
            if tree and not re.fullmatch(r"[0-9a-f]{16}", tree):
                raise SpecError(f"{name} = {tree!r}: must be 16 hexadecimal digits")
        if not (self.payload or self.program):
            raise SpecError("neither payload nor program is given: a run needs the tree of what it runs")
        if not re.fullmatch(r"(?:/[A-Za-z0-9][\w.-]*)+", self.efs_mount, flags=re.ASCII):
            # Horovod puts its working directory on a shell's command line without quotes.
            raise SpecError(f"efs_mount = {self.efs_mount!r}: must be an absolute path without spaces or quotes")
        if self.interface and (wrong := node_rules.broken("interface", self.interface)):
            raise SpecError(wrong)
        if self.network and not re.fullmatch(node_rules.RULES["address"].pattern + "/[0-9]{1,2}", self.network):
            raise SpecError(f"network = {node_rules.escaped(self.network)}: must be a network such as 10.0.0.0/20")
        if self.keras not in (2, 3) or (self.keras == 2 and not self.program):
            raise SpecError(f"keras = {self.keras!r}: must be 3, or 2 for a program of your own")
        if self.program and not self.command:
            raise SpecError("command is empty: a program needs an entry")
        if self.controller not in CONTROLLERS:
            raise SpecError(f"controller = {self.controller!r}: must be {' or '.join(CONTROLLERS)}")
        if self.knobs.hierarchical_allreduce:
            raise SpecError("hierarchical_allreduce needs Horovod built for GPUs; on CPUs it would ignore it")
        if self.knobs.hierarchical_allgather and self.controller != MPI:
            raise SpecError("hierarchical_allgather needs the controller mpi; over Gloo Horovod would ignore it")
        if self.preflight not in ("auto", "full", "skip"):
            raise SpecError(f"preflight = {self.preflight!r}: must be auto, full or skip")
        if not self.hosts and not self.launcher:
            raise SpecError("hosts is empty: a run needs at least one")
        for name, value in self.environment:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
                raise SpecError(f"environment {name!r}: not a variable's name, or a value with a NUL")

    @property
    def ranks(self) -> int:
        """Return the number of ranks: every slot of every host."""
        return sum(host.slots for host in self.hosts)

    @property
    def placed(self) -> str:
        """Say how many ranks run where, in words."""
        return f"{self.ranks} rank{'' if self.ranks == 1 else 's'} on {', '.join(host.name for host in self.hosts)}"

    @property
    def runs_root(self) -> str:
        """Return the directory that holds all runs."""
        return f"{self.efs_mount}/runs"

    @property
    def run_directory(self) -> str:
        """Return the directory of this run."""
        return f"{self.runs_root}/{self.run_id}"

    @property
    def agent_directory(self) -> str:
        """Return the directory of the agent's tree, in which the launcher and the commands on the nodes run.

        Raises SpecError where an older version wrote the spec.
        """
        if not self.agent:
            raise SpecError(
                f"the spec of run {self.run_id} names no agent: an older version launched the run; "
                f"`fab resume {self.run_id}` continues it with the agent of this version"
            )
        return f"{self.efs_mount}/payloads/{self.agent}"

    @property
    def payload_directory(self) -> str:
        """Return the directory of the payload's tree, in which the ranks of a recipe work."""
        return f"{self.efs_mount}/payloads/{self.payload}"

    @property
    def program_directory(self) -> str:
        """Return the directory of the user's program as it was pushed; nothing writes there."""
        return f"{self.efs_mount}/payloads/{self.program}/{PROGRAM_FOLDER}"

    @property
    def working_directory(self) -> str:
        """Return the directory in which the ranks run: for a user's program its copy in the run's directory."""
        return f"{self.run_directory}/{WORK_FOLDER}" if self.program else self.payload_directory

    @property
    def further_requirements(self) -> tuple[str, ...]:
        """Return what the ranks need beyond the program's own requirements."""
        return (TF_KERAS,) if self.keras == 2 else ()

    @property
    def needs_layer(self) -> bool:
        """Tell whether the ranks need packages that the runtime lacks."""
        return bool(self.requirements or self.further_requirements)

    def to_json(self) -> str:
        """Return the spec as JSON, which `from_json` reads back unchanged."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Build the spec from JSON. Raises SpecError for anything that is not one."""
        try:
            document = json.loads(text)
            if not isinstance(document, dict):
                raise TypeError("not an object")
            if unknown := sorted(document.keys() - {field.name for field in dataclasses.fields(cls)}):
                raise SpecError(f"the spec of a run has unknown fields: {', '.join(unknown)}; a newer version wrote it")
            values = {"agent": "", **document}  # older versions packed the agent into the payload's tree
            return cls(**{key: _restore(key, value) for key, value in values.items()})
        except SpecError:
            raise
        except (TypeError, KeyError, ValueError) as error:
            raise SpecError(f"not the spec of a run: {error}") from None


def _restore(key: str, value: Any) -> Any:
    if key == "hosts":
        try:
            return tuple(Node(**host) for host in value)
        except SpecError as error:
            raise SpecError(f"hosts: {error}") from None
    if key == "knobs":
        return Knobs(**value)
    if key == "environment":
        return tuple((str(name), str(content)) for name, content in value)
    return tuple(str(word) for word in value) if isinstance(value, list) else value

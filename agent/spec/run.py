"""The spec of a run as plain values: its hosts, its command and its environment.

Pure, standard library only. The laptop builds the spec, and the supervisor on the master carries it out.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import SpecError, malformed, unreadable
from agent.spec import untrusted_json
from agent.spec.frameworks import FRAMEWORKS, LOCK_FILE
from agent.spec.horovod import CONTROLLERS, GLOO, MPI, Knobs
from agent.spec.launchers import APART, AUTO, HOROVOD, LAUNCHERS, TOGETHER, expand
from agent.spec.node_kinds import FIRST_SUPPORTED, NodeKind, RuntimeKind, runtime_kind
from agent.spec.nodes import RULES, Node, escaped, violation
from agent.spec.run_id import RUN_ID_RULE, is_run_id
from agent.spec.run_limits import Floors, Replacements, RunLimits
from agent.spec.sweep_trial import Trial

RUN_VARIABLE: Final = "DEEPCDK_RUN"
RUNS_VARIABLE: Final = "DEEPCDK_RUNS"
PREPARATION_VARIABLE: Final = "DEEPCDK_PREPARATION"
"""The run id in processes that prepare a node for a run."""
RANK_VARIABLE: Final = "DEEPCDK_RANK"
"""Set for ranks that Horovod does not start: the rank's number, which its launcher does not have."""
PROGRAM_FOLDER: Final = "program"
"""Folder of the user's files in a pushed tree. The payload's files are in `payload`."""
WORK_FOLDER: Final = "work"
MAX_RESTARTS: Final = 1000
MAX_NODES: Final = 9999
MAX_COMMANDS: Final = 10
MAX_STALL_S: Final = 86_400
TRAINING: Final = ("-m", "payload.train")
"""First words of a recipe's command, which resumes from a checkpoint."""
PLACED: Final = "auto"
UNPLACED: Final = "none"
_CHOICES: Final = {
    "rank_launcher": LAUNCHERS,
    "together": TOGETHER,
    "placement": (PLACED, UNPLACED),
    "controller": CONTROLLERS,
    "preflight": ("auto", "full", "skip"),
}
_MAXIMUM: Final = {"restarts": MAX_RESTARTS, "min_nodes": MAX_NODES, "stall_after_s": MAX_STALL_S}
"""Largest value of a whole number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec:
    """The spec of one run: everything that the supervisor needs."""

    run_id: str
    efs_mount: str
    """Mount point of the shared file system, the same on all nodes."""
    agent: str
    """Name of the pushed tree under payloads/ with `agent`: the first 16 hexadecimal digits of its SHA-256."""
    command: tuple[str, ...]
    """The command of each rank: `-m MODULE ...` or `SCRIPT.py ...` for its Python, or a program with arguments."""
    hosts: tuple[Node, ...]
    """Hosts in rank order."""
    entry_words: int = 0
    """Number of words at the start of the command to expand placeholders in (`agent.spec.launchers.expand`)."""
    interface: str = ""
    """The master's network interface, for Horovod's launcher there; empty: Horovod probes all hosts, which is slow."""
    network: str = ""
    """The network of all nodes, for Open MPI; empty: Horovod probes all hosts for interfaces with the same name."""
    environment: tuple[tuple[str, str], ...] = ()
    """Additional environment variables for the ranks. Ranks read them from this spec, so no command line shows them."""
    payload: str = ""
    """Name of the tree with `payload`, for a recipe; empty for a user program."""
    program: str = ""
    """Name of the tree with the user program; empty for a recipe."""
    keras: int = 3
    """Major version of Keras for the program's `tf.keras` and `keras`: 3, or 2 (the package tf-keras)."""
    locked: bool = False
    """Whether the nodes install the packages of the lock file in the program's tree over the runtime."""
    wheels: str = ""
    """Name of the pushed tree with wheels from the laptop; empty: none."""
    own_environment: bool = False
    """Whether the ranks run in the program's own environment, defined by the lock file in its tree."""
    horovod_for: tuple[str, ...] = ()
    """Frameworks to build Horovod for in that environment, from `agent.spec.frameworks`; empty: without Horovod."""
    horovod_wheelhouse: str = ""
    """Address of a wheelhouse that may contain Horovod's wheel (key `wheelhouse`); empty: the nodes build it."""
    secrets: tuple[str, ...] = ()
    """Names of variables with secret values, which the ranks get from `agent.remote.secret_files`."""
    ranks_per_node: int = 0
    """Ranks on each node as requested by the user, checked on the node; 0: the slots that the node registered."""
    controller: str = GLOO
    """The ranks' means of communication: gloo or mpi. On GPUs, NCCL transports the gradients."""
    knobs: Knobs = dataclasses.field(default_factory=Knobs)
    rank_launcher: str = HOROVOD
    """The launcher of the ranks, from `agent.spec.launchers`."""
    together: str = AUTO
    """The reaction to ranks that do not train together, from `agent.spec.launchers`."""
    placement: str = PLACED
    """Whether each rank gets a part of its node: auto or none."""
    own_gpu: bool = False
    """Whether each rank of a program sees only its own GPU. Otherwise the program chooses a GPU by its local rank."""
    recipe: str = ""
    """Display name of the run: the recipe, or the name of the user's script."""
    git_commit: str = ""
    """Commit of the code at launch, with `+` at the end if files differed from it; empty without git.

    For a recipe or benchmark from a wheel: `deepcdk-VERSION`.
    """
    launcher: tuple[str, ...] = ()
    """A command for the master to run instead of horovodrun; empty: horovodrun."""
    preflight: str = "auto"
    """Checks before the run. auto: the allreduce is tested once per set of nodes since they booted; full: tested every
    time; skip: no checks."""
    restarts: int = 0
    """Maximum number of automatic restarts after machine failures."""
    min_nodes: int = 0
    """Minimum number of hosts to continue with if fewer are available than before; 0: as many as before, or any number
    if lost hosts cannot be replaced."""
    stall_after_s: int = 0
    """A rank is stuck, and killed, after this many seconds without a step, output or CPU time; 0: never."""
    bounds: RunLimits = dataclasses.field(default_factory=RunLimits)
    """Limits of time and cost over all attempts."""
    notify: tuple[str, ...] = ()
    """Commands that the master runs when the run ends, fails, is restarted, waits for nodes or is near a limit."""
    stop_policy: str = ""
    """ARN of the scaling policy that terminates all workers after the run and the queue are done; empty: they stay."""
    replacements: Replacements = dataclasses.field(default_factory=Replacements)
    """How lost workers are replaced."""
    allow_degraded: bool = False
    """Start even if GPUs would be idle or slower than their minimum. The record contains it."""
    efa: bool = False
    """Whether the hosts have GPUs and EFA devices. NCCL must then use EFA."""
    floors: Floors = dataclasses.field(default_factory=Floors)
    """Minimum speeds of the GPUs."""
    trial: Trial = dataclasses.field(default_factory=Trial)
    """The run's place in a sweep."""

    def __post_init__(self) -> None:
        if not is_run_id(self.run_id):
            raise SpecError(f"run_id = {self.run_id!r}: must be {RUN_ID_RULE}")
        for name, tree in (("agent", self.agent), ("payload", self.payload), ("program", self.program)):
            if (tree or name == "agent") and not re.fullmatch(r"[0-9a-f]{16}", tree):
                raise SpecError(f"{name} = {tree!r}: must be 16 hexadecimal digits")
        if not (self.payload or self.program):
            raise SpecError("payload and program are both empty: a run needs one of them")
        if not re.fullmatch(r"(?:/[A-Za-z0-9][\w.-]*)+", self.efs_mount, flags=re.ASCII):
            # Horovod puts its working directory on a shell's command line without quotes.
            raise SpecError(f"efs_mount = {self.efs_mount!r}: must be an absolute path without spaces or quotes")
        if self.interface and (wrong := violation("interface", self.interface)):
            raise SpecError(wrong)
        if self.network and not re.fullmatch(RULES["address"].pattern + "/[0-9]{1,2}", self.network):
            raise SpecError(f"network = {escaped(self.network)}: must be an IPv4 network such as 10.0.0.0/20")
        if self.keras not in (2, 3) or (self.keras == 2 and not self.program):
            raise SpecError(f"keras = {self.keras!r}: must be 3, or 2 for your own program")
        if self.own_environment and not self.program:
            raise SpecError("own_environment is only for your own program; a recipe uses the runtime")
        if set(self.horovod_for) - set(FRAMEWORKS):
            raise SpecError(f"horovod_for = {self.horovod_for!r}: may contain only {' and '.join(FRAMEWORKS)}")
        if self.horovod_for and not self.own_environment:
            raise SpecError(f"horovod_for = {self.horovod_for!r}: is only for a program with own_environment")
        if self.own_environment and self.rank_launcher == HOROVOD and not self.horovod_for:
            raise SpecError("horovod_for is empty: Horovod needs TensorFlow or PyTorch")
        if self.program and not self.command:
            raise SpecError("command is empty: a program needs --entry")
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise SpecError(f"{name} = {value!r}: must be one of {', '.join(choices)}")
        for name, most in {"entry_words": len(self.command), **_MAXIMUM}.items():
            if type(value := getattr(self, name)) is not int or not 0 <= value <= most:
                raise SpecError(f"{name} = {value!r}: must be a whole number from 0 to {most}")
        if self.rank_launcher != HOROVOD and not self.program:
            raise SpecError(f"rank_launcher = {self.rank_launcher!r}: a recipe needs {HOROVOD}")
        if self.own_gpu and not (self.program and self.placement == PLACED):
            raise SpecError(f"own_gpu needs a program and placement {PLACED}")
        kind = self.runtime_kind
        reductions = {"allreduce": self.knobs.hierarchical_allreduce, "allgather": self.knobs.hierarchical_allgather}
        for name, is_hierarchical in reductions.items():
            if is_hierarchical and self.controller != MPI:
                raise SpecError(f"--hierarchical-{name} needs --controller mpi: with Gloo, Horovod ignores it")
        if self.knobs.hierarchical_allreduce and not (kind and kind.has_gpus):
            raise SpecError("--hierarchical-allreduce: the nodes have no GPUs, so Horovod ignores it; omit the flag")
        if kind and self.payload and (older := [each for each in kind.capabilities if each < FIRST_SUPPORTED]):
            raise SpecError(
                f"the nodes have GPUs of compute capability {older[0] / 10}, but recipes need {FIRST_SUPPORTED / 10} "
                "(Turing) or later, because of the runtime's cuDNN; use nodes such as g4dn, g5, g6, p4d or p5"
            )
        if any(not command.strip() or "\0" in command for command in self.notify) or len(self.notify) > MAX_COMMANDS:
            raise SpecError(f"--notify: must be at most {MAX_COMMANDS} commands, none of them empty or with a NUL")
        if self.stop_policy and not re.fullmatch(r"arn:[a-z-]+:autoscaling:[a-z0-9-]+:[0-9]{12}:\S+", self.stop_policy):
            raise SpecError(f"stop_policy = {escaped(self.stop_policy)}: must be the ARN of a scaling policy")
        if self.preflight == "skip" and kind and kind.has_gpus and not self.allow_degraded:
            raise SpecError(
                "without the pre-flight, idle GPUs would not be detected: on hosts with GPUs, --skip-preflight needs "
                "--allow-degraded"
            )
        if not self.hosts and not self.launcher:
            raise SpecError("hosts is empty: a run needs at least one host")
        for name, value in self.environment:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                rule = "the name must have only letters, digits and _, and must not begin with a digit"
                raise SpecError(f"environment variable {name!r}: {rule}")
            if "\0" in value:
                raise SpecError(f"environment variable {name!r}: the value must not contain a NUL")

    @property
    def ranks(self) -> int:
        """Return the number of ranks: all slots of all hosts."""
        return sum(host.slots for host in self.hosts)

    @property
    def may_train_apart(self) -> bool:
        """Return whether to watch the ranks' connections, because the ranks may train without each other.

        This is possible in a user program with several ranks. With --together=no, it is intended and not watched.
        Recipes always connect their ranks.
        """
        return bool(self.program) and self.ranks > 1 and self.together != APART

    @property
    def runtime_kind(self) -> RuntimeKind | None:
        """Return the kind of environment for the hosts; None without hosts.

        Raises SpecError if no single environment works for all of them (`agent.spec.node_kinds.runtime_kind`).
        """
        if not self.hosts:
            return None
        return runtime_kind({host.name: NodeKind.parse(host.kind) for host in self.hosts})

    @property
    def placed(self) -> str:
        """Return the number of ranks and the names of their hosts, as text for messages."""
        return placed(self.ranks, [host.name for host in self.hosts])

    @property
    def runs_root(self) -> str:
        """Return the directory of all runs."""
        return f"{self.efs_mount}/runs"

    @property
    def run_directory(self) -> str:
        """Return the directory of this run."""
        return f"{self.runs_root}/{self.run_id}"

    @property
    def agent_directory(self) -> str:
        """Return the directory of the agent's tree on the shared file system; the hosts' commands run there."""
        return f"{self.efs_mount}/payloads/{self.agent}"

    @property
    def payload_directory(self) -> str:
        """Return the directory of the payload's tree, the working directory of a recipe's ranks."""
        return f"{self.efs_mount}/payloads/{self.payload}"

    @property
    def program_directory(self) -> str:
        """Return the directory of the user program as pushed. No process writes to it."""
        return f"{self.efs_mount}/payloads/{self.program}/{PROGRAM_FOLDER}"

    @property
    def working_directory(self) -> str:
        """Return the ranks' working directory.

        This is a copy in the run's directory for a user program, and the payload's tree for a recipe.
        """
        return f"{self.run_directory}/{WORK_FOLDER}" if self.program else self.payload_directory

    @property
    def lock_file(self) -> str:
        """Return the path of the lock file of the program's own packages.

        The file exists only with `locked` or `own_environment`.
        """
        return f"{self.efs_mount}/payloads/{self.program}/{LOCK_FILE}"

    def rank_command(self, python: str, values: Mapping[str, str] | None = None) -> list[str]:
        """Return a rank's command. The path `python` of its interpreter is put before a script (.py) or an option (-m).

        It also replaces the first word `python` or `python3`. With a rank's `values`, the placeholders in the first
        `entry_words` words are expanded.
        """
        entry = [expand(word, values) if values else word for word in self.command[: self.entry_words]]
        return with_interpreter(python, (*entry, *self.command[self.entry_words :]))

    def to_json(self) -> str:
        """Return the spec as JSON, which `from_json` reads back unchanged."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Parse the spec from JSON. Raises SpecError if it is invalid.

        Unknown fields, such as those of a newer version, are invalid. Missing optional fields get their defaults.
        """
        try:
            document = untrusted_json.parse(text)
            if not isinstance(document, dict):
                raise ValueError("must be an object")
            if unknown := sorted(document.keys() - {field.name for field in dataclasses.fields(cls)}):
                listed = ", ".join(unknown)
                raise SpecError(f"unknown fields: {listed}; another version of deepcdk wrote the spec, so use that one")
            return cls(**{key: _restore(key, value) for key, value in document.items()})
        except (TypeError, KeyError, ValueError) as error:  # including SpecError
            raise SpecError(f"the run's spec is invalid: {malformed(error)}") from None

    @classmethod
    def read(cls, run_directory: str | Path) -> RunSpec:
        """Read the spec of a run from its directory. Raises OSError or SpecError."""
        path = Path(run_directory) / "spec.json"
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise SpecError(f"{path}: {unreadable(error)}") from None


def placed(ranks: int, hosts: Sequence[str]) -> str:
    """Return the number of ranks and the names of their hosts, such as `2 ranks on NAME, NAME`."""
    return f"{ranks} rank{'' if ranks == 1 else 's'} on {', '.join(hosts)}"


def with_interpreter(python: str, command: Sequence[str]) -> list[str]:
    """Return a command for a node, with the path `python` of the interpreter before a script (.py) or an option (-m).

    The path also replaces the first word `python` or `python3`. Any other command is unchanged.
    """
    first, *rest = command
    if first in ("python", "python3"):
        return [python, *rest]
    return [python, first, *rest] if first.startswith("-") or first.endswith(".py") else [first, *rest]


_NESTED: Final[Mapping[str, Callable[..., object]]] = {
    "knobs": Knobs, "bounds": RunLimits, "floors": Floors, "replacements": Replacements
}  # fmt: skip


def _restore(key: str, value: Any) -> Any:
    """Convert the JSON value of a spec's field to the field's type. Raises SpecError, TypeError or ValueError."""
    if key == "hosts":
        try:
            return tuple(Node(**host) for host in value)
        except SpecError as error:
            raise SpecError(f"hosts: {error}") from None
    if key in _NESTED:
        return _NESTED[key](**value)
    if key == "trial":
        return Trial.from_document(value)
    if key == "environment":
        return tuple((str(name), str(content)) for name, content in value)
    return tuple(str(word) for word in value) if isinstance(value, list) else value

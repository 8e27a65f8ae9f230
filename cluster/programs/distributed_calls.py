"""What a program's Python sources show about how its ranks join into one training."""

from __future__ import annotations

import ast
import dataclasses
import re
import types
from collections.abc import Callable, Collection, Iterator
from typing import Final

from agent.spec.launchers import HOROVOD, PLAIN, TORCHRUN
from cluster.programs.localhost_check import ENVIRONMENT_READERS, own_addresses, reason_call_is_alone
from cluster.programs.python_ast import dotted, import_names, imports, is_guard, names_in, strings_in

_CALLS: Final = {
    "horovod": HOROVOD,
    "mpi4py.MPI": HOROVOD,
    "torch.distributed.init_process_group": TORCHRUN,
    "torch.distributed.distributed_c10d.init_process_group": TORCHRUN,
    "torch.distributed.init_device_mesh": TORCHRUN,
    "torch.distributed.device_mesh.init_device_mesh": TORCHRUN,
    "torch.distributed.rpc.init_rpc": TORCHRUN,
    "accelerate.Accelerator": TORCHRUN,
    "accelerate.accelerator.Accelerator": TORCHRUN,
    "accelerate.PartialState": TORCHRUN,
    "accelerate.state": TORCHRUN,
    **dict.fromkeys(
        [
            *(f"{name}.Trainer" for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "composer")),
            *(f"{name}.cli.LightningCLI" for name in ("lightning.pytorch", "pytorch_lightning")),
            *("lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"),
            *("transformers.Trainer", "transformers.Seq2SeqTrainer", "transformers.TrainingArguments"),
            *("deepspeed.initialize", "deepspeed.init_distributed"),
            *("ignite.distributed.Parallel", "ignite.distributed.initialize"),
        ],
        TORCHRUN,
    ),
    "tensorflow.distribute.MultiWorkerMirroredStrategy": PLAIN,
    "tensorflow.distribute.experimental.MultiWorkerMirroredStrategy": PLAIN,
    "tensorflow.experimental.dtensor.initialize_accelerator_system": PLAIN,
    "jax.distributed.initialize": PLAIN,
    "keras.distribution.initialize": PLAIN,
}
"""Calls that join the ranks, with the launcher that they need. Names below these count too."""
_LIBRARIES: Final = dict.fromkeys(
    [
        *("torch.distributed", "torch.nn.parallel.DistributedDataParallel", "accelerate", "lightning", "trl"),
        *("pytorch_lightning", "lightning_fabric", "deepspeed", "ignite.distributed", "composer", "fairscale"),
    ],
    TORCHRUN,
)
"""Libraries that can join the ranks. They count only if no name in `_CALLS` is found."""
_TORCHS: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR")
_HOROVODS: Final = (
    *("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"),
)
_EVERYONES: Final = ("DEEPCDK_NODES", "DEEPCDK_NODE", "DEEPCDK_NODE_RANK", "DEEPCDK_NODE_ADDRESSES")
LAUNCHER_VARIABLES: Final = {
    HOROVOD: (*_HOROVODS, *_EVERYONES),
    TORCHRUN: (*_TORCHS, *_EVERYONES),
    PLAIN: (*_TORCHS, "TF_CONFIG", "JAX_COORDINATOR_ADDRESS", "DEEPCDK_RANK", *_EVERYONES),
}
"""Variables that each launcher sets to describe a rank's position."""
POSITION_VARIABLES: Final = frozenset(name for names in LAUNCHER_VARIABLES.values() for name in names)
MPI_VARIABLES: Final = {"OMPI_COMM_WORLD_RANK": "rank", "PMIX_RANK": "rank", "OMPI_COMM_WORLD_SIZE": "world_size"}
JAX_VARIABLES: Final = {
    "PROCESS_ID": "rank",
    "NUM_PROCESSES": "world_size",
    "COORDINATOR_ADDRESS": "master_addr",
    "COORDINATOR_PORT": "master_port",
}
"""Variables that Kubeflow sets for programs with `jax.distributed`, with the placeholder for the same value."""
FOREIGN_VARIABLES: Final = {
    **MPI_VARIABLES,
    **JAX_VARIABLES,
    **dict.fromkeys(("SLURM_PROCID", "PMI_RANK", "MV2_COMM_WORLD_RANK"), "rank"),
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"), "world_size"),
}
"""Variables of Open MPI (with `--controller mpi`), Kubeflow, Slurm and other MPIs, with the placeholder for the same
value.
"""
LIGHTNING_CALL: Final = re.compile(
    r"(?:lightning|pytorch_lightning|lightning_fabric)\b.*\b(?:Trainer|Fabric|LightningCLI)\b(\.\w+)?"
)
"""A call of Lightning; group 1 is a method of the class."""
_SPAWNS: Final = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_ASKS: Final = {*ENVIRONMENT_READERS, "is_torchelastic_launched", "is_initialized"}
_EXITS: Final = ast.Return | ast.Raise | ast.Expr
_QUITS: Final = ("sys.exit", "exit", "quit", "os._exit")
_STATEMENTS: Final = (ast.stmt, ast.ExceptHandler, ast.match_case)
_GPU_CALLS: Final = ("torch.cuda.set_device",)
_FRAMEWORKS: Final = ("torch.", "deepspeed.")
_GROUPS: Final = (".init_process_group", ".init_rpc", ".init_distributed")
_JAX: Final = "jax.distributed.initialize"
_IS_GUARD: Final = re.compile(r"cuda|gpu|is_available|accelerator", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use:
    """One place in the sources that shows how ranks join, or that they do not."""

    file: str
    """Name for messages: a path within the program, or `the entry`."""
    line: int
    """Line number; 0 for the entry."""
    name: str
    """What is used: a call, a library, a variable or a launcher."""
    launcher: str = ""
    """The launcher that this needs; "" if it does not decide the launcher."""
    is_guarded: bool = False
    """Whether it comes from an import that may fail."""
    on_cpus: str = ""
    """The change needed on nodes without GPUs so that several ranks can join. One rank works without it."""

    def __str__(self) -> str:
        """Describe the use, as in `train.py:3 uses torch.distributed.init_process_group`."""
        verb = "starts" if self.launcher and not self.line else "uses"
        return f"{self.file}{f':{self.line}' * bool(self.line)} {verb} {self.name}"


@dataclasses.dataclass(kw_only=True)
class Sources:
    """What the Python sources of a program show about how its ranks join into one training."""

    files: list[str] = dataclasses.field(default_factory=list)
    """The program's Python files, the entry's file first."""
    calls: list[Use] = dataclasses.field(default_factory=list)
    """Calls that join the ranks."""
    libraries: list[Use] = dataclasses.field(default_factory=list)
    """Imports of libraries that can join the ranks, and calls whose package may be missing."""
    variables: list[Use] = dataclasses.field(default_factory=list)
    """Variables of deepcdk's launchers (POSITION_VARIABLES) whose names are in the sources."""
    others: list[Use] = dataclasses.field(default_factory=list)
    """Variables of other launchers, such as Slurm, that a process reads whatever launcher is used."""
    groups: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """Calls that create a process group: the function around each, and why it excludes other nodes, or ""."""
    addresses: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """The function around each assignment of the node's own address, and the reason why other nodes cannot join."""
    spawns: list[Use] = dataclasses.field(default_factory=list)
    """Calls that start processes on the own node."""
    is_numbered: bool = False
    """Whether each call that creates a process group gets its rank from the program, not from variables."""
    names: set[str] = dataclasses.field(default_factory=set)
    """All names that the files use."""
    sure_names: set[str] = dataclasses.field(default_factory=set)
    """Names used by a process that a launcher started, whatever variables the launcher sets."""
    free_names: set[str] = dataclasses.field(default_factory=set)
    """Names among `sure_names` that do not depend on a condition in the program."""
    trainers: list[tuple[Use, bool]] = dataclasses.field(default_factory=list)
    """Calls of Lightning's Trainer and similar classes, and whether each may receive settings that are not visible
    here.
    """
    needs_gpus: list[Use] = dataclasses.field(default_factory=list)
    """Uses that fail on nodes without GPUs."""

    def add_module(self, file: str, tree: ast.AST) -> None:
        """Analyze one module, given by its AST, and add to this object what it shows about how ranks join.

        `file` is the module's name for messages, which must be in `files` already.
        """
        names, optional = import_names(tree), _optional(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name in imports(node, relative=False):
                    self.note(file, node.lineno, name, is_guarded=name.partition(".")[0] in optional)
            elif isinstance(node, ast.Attribute) and (name := _meant(dotted(node), names)):
                self.note(file, node.lineno, name, is_guarded=name.partition(".")[0] in optional)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in POSITION_VARIABLES:
                self.variables.append(Use(file=file, line=node.lineno, name=node.value))
        asked, around = _asked(tree, is_entry=file == self.files[0]), _functions(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in FOREIGN_VARIABLES and id(node) not in asked:
                self.others.append(Use(file=file, line=node.lineno, name=str(node.value)))
        chosen = asked | _chosen(tree)
        self.names |= names_in(tree)
        self.sure_names |= names_in(tree, asked)
        self.free_names |= names_in(tree, chosen)
        for node, name in own_addresses(tree):
            if id(node) not in chosen:
                value = "1" if name == "WORLD_SIZE" else "an address of the node itself"
                reason = f"{file}:{node.lineno} sets {name} to {value}: other nodes do not join"
                self.addresses.append((around.get(id(node), ""), reason))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = _meant(dotted(node.func), names)
            if (name.startswith(_FRAMEWORKS) and name.endswith(_GROUPS)) or name == _JAX:
                reason = "" if id(node) in asked else reason_call_is_alone(node)
                text = f"{file}:{node.lineno} {reason}: other nodes do not join" if reason else ""
                is_numbered = any(word.arg == "rank" for word in node.keywords)
                self.is_numbered = is_numbered and (self.is_numbered or not self.groups)
                self.groups.append((around.get(id(node), ""), text))
            elif name.startswith(_SPAWNS) and id(node) not in asked:
                self.spawns.append(Use(file=file, line=node.lineno, name=name))
            elif (made := LIGHTNING_CALL.fullmatch(name)) and name.partition(".")[0] not in optional:
                is_open = bool(made[1]) or any(word.arg is None for word in node.keywords)
                self.trainers.append((Use(file=file, line=node.lineno, name=name, launcher=TORCHRUN), is_open))
        for call in _unguarded(tree):
            name = _meant(dotted(call.func), names)
            backend = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "backend")]
            is_nccl = any(isinstance(value, ast.Constant) and value.value == "nccl" for value in backend)
            if name in _GPU_CALLS or (name.endswith(".init_process_group") and is_nccl):
                shown = f"{name}(backend='nccl')" if is_nccl else name
                self.needs_gpus.append(Use(file=file, line=call.lineno, name=shown))

    def note(self, file: str, line: int, name: str, *, is_guarded: bool = False) -> None:
        """Record a name, such as `torch.distributed.init_process_group`, if it can join the ranks. Other names are
        ignored.

        With `is_guarded`, for a package whose absence the program handles, even a call counts only as use of a library.
        """
        for known, uses in ((_CALLS, self.calls), (_LIBRARIES, self.libraries)):
            for prefix, launcher in known.items():
                if f"{name}.".startswith(f"{prefix}."):
                    noted = self.libraries if is_guarded else uses
                    noted.append(Use(file=file, line=line, name=name, launcher=launcher, is_guarded=is_guarded))
                    return


def _meant(name: str, names: dict[str, str]) -> str:
    """Expand a dotted name to its full name by the module's imports; "" if no import matches."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if known := names.get(".".join(parts[:count])):
            return ".".join([known, *parts[count:]])
    return ""


def _optional(tree: ast.AST) -> set[str]:
    """Return the top-level names of packages that a module imports only in code that handles their absence."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    guarded = {id(each) for node in ast.walk(tree) if is_guard(node) for each in ast.walk(node)}
    tops: tuple[set[str], set[str]] = (set(), set())
    for node in statements:
        tops[id(node) in guarded].update(name.partition(".")[0] for name in imports(node, relative=False))
    return tops[True] - tops[False]


def _asked(tree: ast.AST, *, is_entry: bool) -> set[int]:
    """Return the ids (as of `id`) of AST nodes that run only under some launchers, or not at all.

    They depend on the launcher's variables, handle an error, or (except in the entry) are under `if __name__ == ...`.
    Nodes after an exit that depends on the variables are included.
    """
    asked, known = set[int](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (
            names_in(node.value) & ENVIRONMENT_READERS or strings_in(node.value) & POSITION_VARIABLES
        ):
            known |= {name for target in node.targets for name in _targets(target)}
    for node in ast.walk(tree):
        is_script = isinstance(node, ast.If) and not is_entry and "__name__" in names_in(node.test)
        if is_script or _asks(node, known):
            asked |= {id(each) for each in ast.walk(node)}
    return asked | _behind(tree, lambda node: _asks(node, known), _EXITS)


def _chosen(tree: ast.AST) -> set[int]:
    """Return the ids of AST nodes that run only under a condition in the program, such as a flag `--local`. Nodes after
    a conditional `return` are included.
    """

    def is_choice(node: ast.AST) -> bool:
        return isinstance(node, ast.If) and "__name__" not in names_in(node.test)

    below = {id(each) for node in ast.walk(tree) if is_choice(node) for each in ast.walk(node)}
    return below | _behind(tree, is_choice, ast.Return)


def _behind(tree: ast.AST, is_choice: Callable[[ast.AST], bool], exits: type | types.UnionType) -> set[int]:
    """Return the ids of AST nodes that are after a choice with a branch that leaves the function or program.

    `is_choice` selects `if` statements. `exits` are the types of statements that leave; an expression counts only if it
    ends the program.
    """
    found = set[int]()
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        waiting, ends = list[ast.AST](scope.body), list[int]()
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.If) and is_choice(node):
                lasts = [block[-1] for block in (node.body, node.orelse) if block]
                if any(isinstance(last, exits) and (not isinstance(last, ast.Expr) or _quits(last)) for last in lasts):
                    ends.append(node.end_lineno or node.lineno)
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, _STATEMENTS)]
        if ends:
            first = min(ends)
            found |= {id(each) for each in ast.walk(scope) if getattr(each, "lineno", 0) > first}
    return found


def _quits(statement: ast.Expr) -> bool:
    """Return whether a statement such as `sys.exit()` ends the program."""
    return isinstance(statement.value, ast.Call) and dotted(statement.value.func) in _QUITS


def _targets(target: ast.AST) -> Iterator[str]:
    """Yield the names that an assignment sets, such as `distributed` for `args.distributed`."""
    if isinstance(target, ast.Name | ast.Attribute):
        yield target.id if isinstance(target, ast.Name) else target.attr
    elif isinstance(target, ast.Tuple):
        for each in target.elts:
            yield from _targets(each)


def _functions(tree: ast.AST) -> dict[int, str]:
    """Map each AST node's id to the name of its innermost function; "" if that function has a decorator.

    Nodes outside of functions are left out.
    """
    found: dict[int, str] = {}
    for node in ast.walk(tree):  # the outer ones first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= dict.fromkeys(map(id, ast.walk(node)), "" if node.decorator_list else node.name)
    return found


def _asks(node: ast.AST, known: Collection[str]) -> bool:
    """Return whether a node is an `except` clause, or an `if` whose condition depends on the launcher.

    The condition reads the environment, names one of the launcher's variables, asks whether PyTorch was launched or
    initialized (`_ASKS`), or uses a name in `known`. `known` are names that were set from environment variables.
    """
    if isinstance(node, ast.ExceptHandler):
        return True
    return isinstance(node, ast.If) and bool(
        names_in(node.test) & {*_ASKS, *known} or strings_in(node.test) & POSITION_VARIABLES
    )


def _unguarded(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that are not under a condition on the device, such as `torch.cuda.is_available()`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If | ast.IfExp):
            words = names_in(node.test) | strings_in(node.test)
            if any(map(_IS_GUARD.search, words)):
                continue
        if isinstance(node, ast.Call):
            yield node
        waiting += reversed(list(ast.iter_child_nodes(node)))

"""Detect from a program's sources how its ranks join into one training, and choose the launcher accordingly."""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
import tomllib
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.spec.horovod import MPI
from agent.spec.launchers import HOROVOD, MASTER_PORT, PLAIN, TORCHRUN, has_placeholder
from cluster.errors import UsageError
from cluster.programs.keras3_lint import (
    dotted,
    import_names,
    imported,
    imports,
    is_guard,
    modules,
    names_in,
    parsed_text,
)
from cluster.terminal.paths import is_file

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
_VARIABLES: Final = {
    HOROVOD: (*_HOROVODS, *_EVERYONES),
    TORCHRUN: (*_TORCHS, *_EVERYONES),
    PLAIN: (*_TORCHS, "TF_CONFIG", "JAX_COORDINATOR_ADDRESS", "DEEPCDK_RANK", *_EVERYONES),
}
"""Variables that each launcher sets to describe a rank's position."""
_NAMES: Final = frozenset(name for names in _VARIABLES.values() for name in names)
_OF_MPI: Final = {"OMPI_COMM_WORLD_RANK": "rank", "PMIX_RANK": "rank", "OMPI_COMM_WORLD_SIZE": "world_size"}
_OTHERS: Final = {
    **_OF_MPI,
    **dict.fromkeys(("SLURM_PROCID", "PMI_RANK", "MV2_COMM_WORLD_RANK"), "rank"),
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"), "world_size"),
}
"""Variables of Open MPI (with `--controller mpi`), Slurm and other MPIs, with the placeholder for the same value."""
_SERVES: Final = {HOROVOD: (HOROVOD,), TORCHRUN: (TORCHRUN,), PLAIN: (PLAIN, TORCHRUN)}
"""The launchers whose programs each launcher can also start: `plain` sets all variables of PyTorch's `env://`."""
_TORCHRUN: Final = ("nnodes",), ("node_rank", "rdzv_endpoint", "rdzv_backend")
_ACCELERATE: Final = ("num_machines",), ("machine_rank", "rdzv_backend")
_FABRIC: Final = ("num_nodes",), ("node_rank",)
_OWN_LAUNCHERS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch", "tune"), _TORCHRUN),
    **dict.fromkeys(("accelerate", "accelerate-launch", "accelerate.commands.launch"), _ACCELERATE),
    **dict.fromkeys(("fabric", "lightning", "lightning.fabric"), _FABRIC),
    **dict.fromkeys(("composer", "composer.cli.launcher"), (("world_size",), ("node_rank",))),
    "deepspeed": (("hostfile", "H", "num_nodes", "node_rank"), ()),
    "colossalai": (("hostfile", "host", "H"), ()),
    **dict.fromkeys(("horovodrun", "mpirun", "mpiexec"), ((), ())),
}
"""Launchers that an entry may start itself, each with its flags for several nodes and for the node's position.

Without a flag from each group, the launcher starts ranks on one node only. `_` in a flag also stands for `-`.
"""
_ADDRESSES: Final = {
    **{name: ("master_addr", "rdzv_endpoint") for name, flags in _OWN_LAUNCHERS.items() if flags == _TORCHRUN},
    **{name: ("main_address",) for name, flags in _OWN_LAUNCHERS.items() if flags == _FABRIC},
}
"""Flags for the rendezvous address, for launchers that use localhost by default."""
_VERBS: Final = {
    "accelerate": ("launch", "test"),
    **dict.fromkeys(("fabric", "lightning", "colossalai", "tune"), ("run",)),
}
"""Subcommands with which a multi-purpose program acts as a launcher."""
_PLACES: Final = ("node_rank", "machine_rank")
_GPU_TYPES: Final = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")
_GPU_FLAGS: Final = {"multi_gpu", "use_fsdp", "use_deepspeed", "use_megatron_lm"}
"""Types in accelerate's configuration, and flags, for which accelerate starts torchrun."""
_HOROVODS_OWN: Final = ("horovodrun", "mpirun", "mpiexec")
_BEFORE: Final = frozenset(
    (
        *(
            "env",
            "exec",
            "command",
            "time",
            "nohup",
            "nice",
            "ionice",
            "numactl",
            "taskset",
            "timeout",
            "stdbuf",
            "setsid",
        ),
        *("sudo", "srun", "if", "elif", "then", "else", "do", "while", "until", "!", "{", "$"),
    )
)
"""Shell words that are followed by the command that they start."""
_RUNNERS: Final = ("uv", "poetry", "conda", "mamba", "micromamba", "pipenv", "pdm", "pixi", "rye", "hatch")
"""Programs with a `run` subcommand that starts the command after it."""
_ARGUMENT: Final = re.compile(r"\$(?:[@*1]|\{[@*1][^}]*\})")
"""A use of a shell text's arguments, such as `$@` or `$1`."""
_TRAINER: Final = re.compile(r"^(?:lightning|pytorch_lightning|transformers)\b")
_LIGHTNING: Final = re.compile(
    r"(?:lightning|pytorch_lightning|lightning_fabric)\b.*\b(?:Trainer|Fabric|LightningCLI)\b(\.\w+)?"
)
"""A call of Lightning; group 1 is a method of the class."""
_TARGET: Final = re.compile(
    r"_target_['\"]?:\s*['\"]?(?:lightning|pytorch_lightning|lightning_fabric)\.[\w.]*\b(?:Trainer|Fabric)\b"
)
"""A call of Lightning in a Hydra configuration."""
_NUM_NODES: Final = re.compile(
    r"num[_-]nodes(?!['\"]?\s*[:=]\s*['\"]?1['\"]?[ \t\r]*(?:[,;)}\]#'\"]|$))", re.IGNORECASE | re.MULTILINE
)
_NODES_OF_LIGHTNING: Final = ("PL_TRAINER_NUM_NODES", "LT_NUM_NODES")
_MAX_TEXT_BYTES: Final = 1_000_000
SHELLS: Final = ("sh", "bash", "dash", "zsh", "ksh")
_PYTHON: Final = re.compile(r"python[0-9.]*")
_LOCALHOST: Final = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?::\d+)?")
_OWN_ADDRESS: Final = re.compile(
    r"tcp://(?:localhost|127\.0\.0\.1|\[?::1\]?)(?:[:/]|$)|file://(?:localhost)?/(?:var/)?(?:tmp|dev/shm)/"
)
"""Meeting places on the own node. Each node has its own /tmp."""
_SPAWNS: Final = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_ADDRESS_FLAG: Final = re.compile(r"(?:dist\w*[-_]url|init[-_]method)$")
_MEETING: Final = ("MASTER_ADDR", "TF_CONFIG", "JAX_COORDINATOR_ADDRESS")
_READS: Final = {"environ", "getenv"}
_ASKS: Final = {*_READS, "is_torchelastic_launched", "is_initialized"}
_EXITS: Final = ast.Return | ast.Raise | ast.Expr
_QUITS: Final = ("sys.exit", "exit", "quit", "os._exit")
_STATEMENTS: Final = (ast.stmt, ast.ExceptHandler, ast.match_case)
_GPUS: Final = ("gpu", "cuda")
_GPU_CALLS: Final = ("torch.cuda.set_device",)
_FRAMEWORKS: Final = ("torch.", "deepspeed.")
_GROUPS: Final = (".init_process_group", ".init_rpc", ".init_distributed")
_JAX: Final = "jax.distributed.initialize"
_IS_GUARD: Final = re.compile(r"cuda|gpu|is_available|accelerator", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use:
    """One place in the sources that shows how ranks join, or that they do not."""

    file: str
    line: int
    name: str
    launcher: str = ""
    is_guarded: bool = False
    """Whether it comes from an import that may fail."""
    on_cpus: str = ""
    """The change needed on nodes without GPUs so that several ranks can join. One rank works without it."""

    def __str__(self) -> str:
        verb = "starts" if self.launcher and not self.line else "uses"
        return f"{self.file}{f':{self.line}' * bool(self.line)} {verb} {self.name}"


@dataclasses.dataclass(kw_only=True)
class Joining:
    """What a program's sources show about how its ranks join."""

    files: list[str] = dataclasses.field(default_factory=list)
    """The program's Python files, the entry's file first."""
    calls: list[Use] = dataclasses.field(default_factory=list)
    libraries: list[Use] = dataclasses.field(default_factory=list)
    variables: list[Use] = dataclasses.field(default_factory=list)
    others: list[Use] = dataclasses.field(default_factory=list)
    """Variables of other launchers, such as Slurm, that a process reads whatever launcher is used."""
    launchers: list[Use] = dataclasses.field(default_factory=list)
    """Launchers that the entry starts itself."""
    colliding: list[Use] = dataclasses.field(default_factory=list)
    """Launchers in the entry that would listen at the port of `--launcher torchrun`."""
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
    one_node: str = ""
    """Why Lightning would train on one node; "" if its number of nodes is set."""
    launched_alone: list[str] = dataclasses.field(default_factory=list)
    """Why the entry's launchers do not join the nodes, unless variables such as PET_NNODES set their flags."""
    alone: list[str] = dataclasses.field(default_factory=list)
    """Why the ranks of different nodes do not join."""
    needs_gpus: list[Use] = dataclasses.field(default_factory=list)
    has_placeholder: bool = False

    @property
    def uses(self) -> list[Use]:
        """Return the uses that join the ranks."""
        return self.calls or [use for use in self.libraries if not use.is_guarded] or self.libraries

    @property
    def _groups(self) -> list[Use]:
        """Return the uses that join ranks without Horovod. Trainers are not included, because they can use Horovod."""
        return [use for use in self.calls if use.launcher != HOROVOD and not _TRAINER.search(use.name)]

    def choose(self, horovods: str = "") -> tuple[str, str]:
        """Return the launcher and the reason for it. `horovods` is a Horovod flag that the user gave.

        A launcher in the entry takes precedence, then calls in the entry's own file, calls in imported modules, and
        variables that the program reads. Trainers such as Lightning's also run on Horovod, so Horovod wins over them.
        Raises UsageError if two launchers remain.
        """
        if horovods:
            return HOROVOD, f"{horovods} is a setting of Horovod"
        if self.launchers:
            return PLAIN, str(self.launchers[0])  # it is started as one process on each node
        if any(use.name.startswith("horovod") for use in self.calls) and not self._groups:
            return HOROVOD, str(next(use for use in self.calls if use.name.startswith("horovod")))
        own = [use for use in self.uses if self.files and use.file == self.files[0]]
        for uses in (own, self.uses):
            if len({use.launcher for use in uses}) == 1:
                return uses[0].launcher, str(uses[0])
        if self.uses:
            first = [next(use for use in self.uses if use.launcher == name) for name in {u.launcher for u in self.uses}]
            named = " and ".join(f"{use} ({use.launcher})" for use in sorted(first, key=str))
            raise UsageError("--launcher", None, f"must be given, because the sources fit several launchers: {named}")
        for launcher in (HOROVOD, PLAIN):
            if read := [use for use in self.variables if use.name in _VARIABLES[launcher]]:
                return launcher, str(read[0])
        if not self.files and not self.has_placeholder:
            return HOROVOD, (
                "it is the default, and the program's sources were not found; if it needs another "
                "launcher, give --launcher"
            )
        return HOROVOD, "it is the default, and nothing in the sources joins the ranks"

    def trouble(
        self, launcher: str, controller: str, *, nodes: int, variables: Mapping[str, str] = types.MappingProxyType({})
    ) -> str:
        """Return why the ranks would not train together, or "" if the sources show no problem.

        `variables` are those set with --env.
        """
        has_flags = any(name.startswith("PET_") for name in variables)  # torchrun reads its flags from them
        alone = [*([] if has_flags else self.launched_alone), *self.alone]
        if nodes > 1 and alone:
            return alone[0]
        if nodes > 1 and self.one_node and all(variables.get(name, "1") == "1" for name in _NODES_OF_LIGHTNING):
            return self.one_node
        if launcher == TORCHRUN and self.colliding:
            other = f"under another torchrun, which listens at port {MASTER_PORT} of the first node"
            return f"{self.colliding[0]} {other}: give --launcher plain"
        if self.launchers or self.has_placeholder or not self.files:
            return ""
        places = {use.name for use in self.variables} - {"MASTER_ADDR"}
        if nodes > 1 and self.spawns and self.is_numbered and not places:
            remedy = "to train on one node, give --nodes 1 --ranks-per-node 1"
            return (
                f"{self.spawns[0]}, which starts processes on its own node, and nothing reads the number of the node, "
                f"such as NODE_RANK or {{node_rank}} in --entry: {remedy}"
            )
        given = {*_VARIABLES[launcher], *variables}
        given = given | {*_OF_MPI} if launcher == HOROVOD and controller == MPI else given - {*_OF_MPI}
        if any(use.name in given for use in self.variables):
            return ""
        others = [use for use in self.others if use.name not in given]
        if others and all(use.name.startswith("torch.distributed") for use in self.uses):
            words = " ".join(f"{name}={{{_OTHERS[name]}}}" for name in dict.fromkeys(use.name for use in others))
            mpi = ", or give --controller mpi" if others[0].name in _OF_MPI else ""
            what = f"{others[0]}, which --launcher {launcher} does not set"
            return f"{what}: start --entry with `env {words} python`{mpi}"
        found = [*self.uses, *(use for use in self.libraries if use.is_guarded)]
        if served := [use for use in found if use.launcher in _SERVES[launcher]]:
            if controller != MPI and all(use.name.startswith("mpi4py") for use in served):
                return f"{served[0]}, which needs --controller mpi"
            return ""
        if self.uses:
            use = self.uses[0]
            return f"{use}, and --launcher {launcher} does not provide what it needs: give --launcher {use.launcher}"
        more = " and the modules that it imports" if self.files[1:] else ""
        return (
            f"nothing in {self.files[0]}{more} joins the ranks: there is no Horovod, torch.distributed, Accelerate, "
            "Lightning, jax.distributed or MultiWorkerMirroredStrategy, and no variable such as RANK is read"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """Something that an entry starts: a Python file or text, an installed module, a shell text or a launcher."""

    kind: str
    """python, module, shell or launcher."""
    name: str
    """Name to show in a message; the dotted name of a module."""
    path: Path | None = None
    text: str = ""
    words: tuple[str, ...] = ()
    """Of a launcher, the words after it."""
    roots: tuple[Path, ...] = ()
    """Directories where Python looks for the program's own modules."""
    module: str = ""
    """Top-level name of a module started with -m."""


def starts(directory: Path, words: Sequence[str]) -> Iterator[Start]:
    """Yield what an entry starts, directly or through shells, shell scripts, `env` and launchers."""
    yield from _starts(words, directory, [directory], set())


def _starts(words: Sequence[str], directory: Path, bases: Sequence[Path], seen: set[Path]) -> Iterator[Start]:
    """Yield what the words of a command start. `bases` are directories to look for files, `seen` the shell scripts read
    so far.
    """
    before, command = "", _command(words)
    for index, word in enumerate(words):
        name, rest = Path(word).name, words[index + 1 :]
        if index == command and (path := _console_script(directory, bases, word)):
            yield Start(kind="python", name=_shown(path, directory), path=path)
            return
        if (
            index == command
            and name in _OWN_LAUNCHERS
            and "." not in name
            and _is_launcher(name, rest)
            and not ("/" in word and _file(word, bases))
        ):
            yield Start(kind="launcher", name=name, words=tuple(rest))
        elif word in ("-m", "--module") and rest and re.fullmatch(r"[A-Za-z_][\w.]*", rest[0]):
            path = _module_file(directory, bases, rest[0])
            if path is None and rest[0] in _OWN_LAUNCHERS and _is_launcher(rest[0], rest[1:]):
                yield Start(kind="launcher", name=rest[0], words=tuple(rest[1:]))
            else:
                yield Start(
                    kind="python" if path else "module",
                    name=_shown(path, directory) or rest[0],
                    path=path,
                    roots=tuple(bases),
                    module=rest[0].partition(".")[0],
                )
                if path is None:  # it may start the following words, as cProfile, pdb or coverage do
                    yield from _starts(rest[1:], directory, bases, seen)
                return
        elif re.fullmatch(r"-[a-z]*c", word) and rest and (before in SHELLS or _PYTHON.fullmatch(before)):
            if before in SHELLS:
                yield Start(kind="shell", name=f"{before} -c", text=rest[0])
                yield from _commands_start(rest[0], rest[2:], directory, bases, seen)
            else:
                yield Start(kind="python", name=f"{before} -c", text=rest[0], roots=tuple(bases))
            return
        elif path := _file(word, bases):
            kind = _script_kind(path)
            if kind == "python":
                yield Start(kind="python", name=_shown(path, directory), path=path, roots=(path.parent,))
            elif kind == "shell" and path not in seen:
                seen.add(path)
                text = path.read_text(encoding="utf-8", errors="replace")
                yield Start(kind="shell", name=_shown(path, directory), path=path, text=text)
                yield from _commands_start(text, rest, directory, bases, seen)
            if kind:
                return
        if not word.startswith("-"):
            before = name


def _is_launcher(name: str, rest: Sequence[str]) -> bool:
    """Return whether a program that can be a launcher acts as one with these words after it."""
    return bool(rest) and rest[0] in _VERBS.get(name, rest[:1])


def _command(words: Sequence[str]) -> int:
    """Return the index of the command word, after assignments, `env`, `exec`, `numactl` and similar prefixes."""
    index = 0
    while index < len(words):
        word, following = words[index], next(iter(words[index + 1 :]), "")
        name = Path(word).name
        if name == "command" and following.startswith("-"):
            break  # `command -v` prints the path of a command
        if name in _RUNNERS and following == "run":
            index += 2
        elif name in _BEFORE or re.match(r"\w+=", word) or (index and re.fullmatch(r"[\d.,]+[smhd]?|--", word)):
            index += 1
        elif index and word.startswith("-"):
            is_command = Path(following).name in (*_OWN_LAUNCHERS, *SHELLS) or _PYTHON.fullmatch(Path(following).name)
            index += 1 if "=" in word or is_command or following.startswith("-") else 2
        else:
            break
    return index


def _console_script(directory: Path, bases: Sequence[Path], word: str) -> Path | None:
    """Return the module file of a console script that pyproject.toml, setup.cfg or setup.py declares
    under this name.
    """
    target: object = None
    try:
        found = tomllib.loads(_text(directory / "pyproject.toml"))
        places = (found.get("project", {}), found.get("tool", {}).get("poetry", {}))
        target = {name: text for place in places for name, text in place.get("scripts", {}).items()}.get(word)
    except (ValueError, AttributeError, RecursionError):
        pass
    if not target and re.fullmatch(r"[\w.-]+", word):
        command = re.compile(rf"(?:^|[\[,])[\s'\"]*{re.escape(word)}\s*=\s*([\w.]+):", re.MULTILINE)
        target = next(
            (each[1] for name in ("setup.cfg", "setup.py") if (each := command.search(_text(directory / name)))), ""
        )
    module = target.partition(":")[0].strip() if isinstance(target, str) else ""
    if not re.fullmatch(r"[A-Za-z_][\w.]*", module):
        return None
    return _module_file(directory, bases, module, "__init__.py")


def _text(path: Path) -> str:
    """Return the text of a file; "" if it cannot be read or is too large for a settings file."""
    try:
        if path.stat().st_size > _MAX_TEXT_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _commands_start(
    text: str, words: Sequence[str], directory: Path, bases: Sequence[Path], seen: set[Path]
) -> Iterator[Start]:
    """Yield what the commands of a shell text start. `words` replace `$@`."""
    bases = list(bases)
    for line in _commands(text):
        command = [
            each
            for word in line
            for each in (words if _ARGUMENT.fullmatch(word.strip('"')) and "1" not in word else [word])
        ]
        if command[0] == "cd" and command[1:] and (moved := bases[0] / command[1]).is_dir():
            bases.append(moved)
        else:
            yield from _starts(command, directory, bases, seen)
    if _ARGUMENT.search(text):
        yield from _starts(words, directory, bases, seen)


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command in a shell text, as far as that is possible without running it."""
    end = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if end:
            end = "" if line.strip() == end else end
            continue
        if document := re.search(r"(?<!<)<<-?\s*[\\\"']?([A-Za-z_]\w*)", line):
            end = document[1]
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split, lexer.commenters = True, "#"
        try:
            words = list(lexer)
        except ValueError:  # a quotation or a here-document over several lines
            words = line.split()
        command: list[str] = []
        for word in (*words, ";"):
            if set(word) <= set(";&|()"):
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def _file(word: str, bases: Sequence[Path]) -> Path | None:
    """Return the program's file that a word names; None if there is none. `$DIR/train.py` counts as `train.py`."""
    for name in (word, re.sub(r"^\$(?:\w+|\{[^}]*\})/", "", word), *([Path(word).name] if "$" in word else [])):
        if not name or name.startswith(("-", "/")) or "\0" in name or len(name) > 1000 or ".." in Path(name).parts:
            continue
        for base in bases:
            if is_file(base / name):
                return base / name
    return None


def _script_kind(path: Path) -> str:
    """Return python, shell or "" for a file, by its suffix or its first line."""
    with path.open("rb") as file:
        first = file.readline(200).decode(errors="replace")
    interpreter = first.split()[-1] if first.startswith("#!") and first.split() else ""
    if path.suffix == ".py" or _PYTHON.fullmatch(Path(interpreter).name):
        return "python"
    return "shell" if path.suffix in (".sh", ".bash") or Path(interpreter).name in SHELLS else ""


def _module_file(directory: Path, bases: Sequence[Path], module: str, *others: str) -> Path | None:
    """Return a module's file, or else its package's `__main__.py` (or one of `others`); None if there is none."""
    for base in (*bases, directory / "src"):
        path = base.joinpath(*module.split("."))
        for candidate in (path.parent / f"{path.name}.py", *(path / name for name in others or ("__main__.py",))):
            if is_file(candidate):
                return candidate
    return None


def _shown(path: Path | None, directory: Path) -> str:
    return str(path.relative_to(directory)) if path else ""


def examine(directory: Path, words: Sequence[str], entry_words: int, configs: Sequence[Path] = ()) -> Joining:
    """Analyse a program's sources, starting from its entry. The first `entry_words` words may contain placeholders.

    `configs` are configuration files, relative to the directory, that may contain settings such as num_nodes.
    """
    found = Joining(has_placeholder=any(map(has_placeholder, words[:entry_words])))
    for before, word in zip(("", *words), words, strict=False):
        name, _, value = ("", "", word) if word.startswith(("tcp:", "file:")) else word.partition("=")
        if _OWN_ADDRESS.match(value) and _ADDRESS_FLAG.search(name or before):
            found.alone.append(f"{word} in the entry is an address of the node itself: other nodes do not join")
    seen: set[Path] = set()
    installed: list[str] = []
    launched: dict[str, list[Mapping[str, str]]] = {}
    shells: list[str] = []
    for start in starts(directory, words):
        if start.kind == "launcher":
            found.launchers.append(Use(file="the entry", line=0, name=start.name, launcher=PLAIN))
            settings = _settings(start.words, directory)
            launched.setdefault(start.name, []).append(settings)
            if start.name.startswith("accelerate") and not _names_device(settings):
                # Without --cpu, accelerate sets ACCELERATE_USE_CPU=False, and the ranks do not join.
                instead = f"give --cpu to {start.name}"
                found.needs_gpus.append(
                    Use(file="the entry", line=0, name=f"{start.name} without --cpu", on_cpus=instead)
                )
            if start.name in ("torchrun", "torch.distributed.run") and _is_same_port(settings):
                found.colliding.append(found.launchers[-1])
        elif start.kind == "module":
            installed.append(f"the module {start.name}")
            _note(found, "the entry", 0, start.name)
        elif start.kind == "shell":
            shells.append(start.text)
            for name in re.findall(r"\$\{?([A-Z_]+)\b", start.text):
                if name in _NAMES:
                    found.variables.append(Use(file=start.name, line=1, name=f"${name}"[1:]))
        elif start.path is None:
            if (tree := parsed_text(start.text)) is not None:
                found.files.append(start.name)
                _read(found, start.name, tree)
                for path in imported(tree, directory, directory / "text.py", named=True):
                    if path.is_file():
                        _follow(found, directory, path, seen)
        else:
            _follow(found, directory, start.path, seen)
    for name, given in launched.items():
        if any("PET_" in text for text in (*words, *shells)):
            continue  # variables may contain torchrun's flags
        reasons = [_reason_alone(name, settings) for settings in given]
        places = {tuple(settings.get(flag) for flag in _PLACES) for settings in given}
        if all(reasons) and len(places) == 1:  # several starts may be for different nodes
            instead = HOROVOD if name in _HOROVODS_OWN else TORCHRUN
            found.launched_alone.append(
                f"{reasons[0]}: leave the launcher out, and give the program that it starts, with --launcher {instead}"
            )
    found.files += installed
    found.needs_gpus += _asked_gpus(directory, words, configs)
    found.alone += _alone(found)
    found.one_node = _on_one_node(found, (*words, *shells), seen, [directory / name for name in configs])
    return found


def _names_device(settings: Mapping[str, str]) -> bool:
    """Return whether the settings of `accelerate launch` let ranks on CPUs join."""
    return "cpu" in settings or "multi_gpu" in settings or settings.get("use_cpu", "").lower() in ("true", "yes")


def _asked_gpus(directory: Path, words: Sequence[str], configs: Sequence[Path]) -> Iterator[Use]:
    """Yield the places where the entry asks Lightning for GPUs: in a word, or in a Hydra configuration that a word
    selects.
    """
    given = re.findall(r"(?:^|[\s.+-])accelerator[= ](\w+)", " ".join(words))
    if given:
        if given[-1] in _GPUS:
            yield Use(file="the entry", line=0, name=f"accelerator={given[-1]}")
        return
    chosen = [f"{group.lstrip('+')}/{choice}" for group, _, choice in (word.partition("=") for word in words) if choice]
    for name in configs:
        if any(f"/{name.with_suffix('')}".endswith(f"/{each}") for each in chosen):
            for number, line in enumerate(_text(directory / name).splitlines(), 1):
                if (found := re.match(r"accelerator:\s*['\"]?(\w+)", line)) and found[1] in _GPUS:
                    yield Use(file=str(name), line=number, name=f"accelerator: {found[1]}")


def _alone(found: Joining) -> Iterator[str]:
    """Yield why process groups exclude other nodes, unless that code is never called or another call
    creates a group.
    """

    def is_called(function: str, names: Collection[str]) -> bool:
        return function in ("", "main") or function.startswith("__") or function in names

    joined = {function for function, _ in found.groups}
    for function, reason in found.addresses:
        if is_called(function, found.sure_names if function in joined else found.free_names):
            yield reason
    groups = [(function, reason) for function, reason in found.groups if is_called(function, found.names)]
    reasons = [reason if is_called(function, found.sure_names) else "" for function, reason in groups]
    yield from reasons if all(reasons) else ()


def _on_one_node(found: Joining, words: Sequence[str], sources: Collection[Path], configs: Sequence[Path]) -> str:
    """Describe a Lightning Trainer or Fabric if nothing sets its number of nodes; "" otherwise."""
    use = next((use for use in found.calls if _LIGHTNING.match(use.name) and not use.is_guarded), None)
    if use is None or found.launchers or any(each.launcher == HOROVOD for each in found.calls):
        return ""
    if any(is_open for _, is_open in found.trainers):
        return ""
    texts = list(map(_text, configs))
    if not found.trainers and not any(map(_TARGET.search, texts)):
        return ""  # it is only imported as a type
    if any(map(_NUM_NODES.search, (*words, *texts, *map(_text, sources)))):
        return ""
    use = found.trainers[0][0] if found.trainers else use
    return f"{use}, and nothing sets num_nodes, which is 1 by default: set it, for example to {{num_nodes}} in --entry"


def _settings(words: Sequence[str], directory: Path) -> dict[str, str]:
    """Return a launcher's settings: the values of its own flags, without the program's, by name without dashes.

    For settings without a flag, the values in --config_file are included. A variable that may contain more flags is
    stored under "$".
    """
    found: dict[str, str] = {}
    words = [each for word in words for each in (word.split("=", 1) if word.startswith("--") else [word])]
    for index, word in enumerate(words):
        if word.endswith(".py") or word in ("-m", "--module"):
            break
        if word.startswith("--") or word == "-H":
            following = next(iter(words[index + 1 :]), "")
            found[word.strip("-").replace("-", "_")] = "" if following.startswith("--") else following
        elif word.startswith("$") and not (index and words[index - 1].startswith("--")):
            found["$"] = word  # it may contain further flags
    if (config := found.get("config_file")) and (file := _file(config, [directory])):
        lines = re.findall(r"^(\w+):[ \t]*['\"]?([^'\"\s#]*)", _text(file), re.MULTILINE)
        found = {name: value for name, value in lines if value} | found
    elif config:  # the file is on the nodes
        found |= dict.fromkeys(("num_machines", "machine_rank"), found["config_file"])
    return found


def _reason_alone(name: str, settings: Mapping[str, str]) -> str:
    """Return why a launcher with these settings starts ranks that do not join those on other nodes, or ""."""
    counts, places = _OWN_LAUNCHERS[name]
    given = [settings[flag] for flag in counts if flag in settings]
    is_one = any(re.fullmatch(r"1(:1)?", value) for value in given)
    is_whole = "$" not in settings
    lacks = not given or bool(places and not settings.keys() & set(places))
    if is_one or "standalone" in settings or (lacks and is_whole):
        return f"{name} in the entry starts the ranks of one node only, on each node"
    for flag, value in settings.items():
        if flag in _PLACES and value.isdecimal() and settings.get("rdzv_backend", "static") == "static":
            return f"{name} in the entry gives each node the {flag} {value}; give {{node_rank}}"
        if _LOCALHOST.fullmatch(value):
            return f"{name} in the entry lets each node connect to itself at {value}; give {{master_addr}}"
    uses_gpus = settings.get("distributed_type") in _GPU_TYPES or settings.keys() & _GPU_FLAGS
    if name.startswith("accelerate") and is_whole and uses_gpus and "main_process_ip" not in settings:
        return f"{name} in the entry has no --main_process_ip, so the nodes do not find each other"
    addresses = _ADDRESSES.get(name, ())
    if settings.get("rdzv_backend") == "c10d":
        addresses = tuple(flag for flag in addresses if flag != "master_addr")  # torchrun does not read it then
    if addresses and is_whole and not settings.keys() & set(addresses):
        flag = addresses[0].replace("_", "-")
        return f"{name} in the entry has no --{flag}, so each node connects only to itself at localhost"
    return ""


def _is_same_port(settings: Mapping[str, str]) -> bool:
    """Return whether this torchrun would listen at the port of the torchrun that starts the entry."""
    port = settings.get("master_port") or settings.get("rdzv_endpoint", "").rpartition(":")[2]
    is_same = port in ("", str(MASTER_PORT), "{master_port}") or "MASTER_PORT" in port
    return is_same and not settings.keys() & {"standalone", "$"}


def _follow(found: Joining, directory: Path, script: Path, seen: set[Path]) -> None:
    """Analyse a script and the modules that it imports."""
    if script not in seen:
        for path, tree in modules(directory, script, named=True):
            if path not in seen:
                seen.add(path)
                found.files.append(_shown(path, directory))
                _read(found, found.files[-1], tree)


def _note(found: Joining, file: str, line: int, name: str, *, is_guarded: bool = False) -> None:
    """Record a name that joins the ranks."""
    for known, uses in ((_CALLS, found.calls), (_LIBRARIES, found.libraries)):
        for prefix, launcher in known.items():
            if f"{name}.".startswith(f"{prefix}."):
                noted = found.libraries if is_guarded else uses
                noted.append(Use(file=file, line=line, name=name, launcher=launcher, is_guarded=is_guarded))
                return


def _read(found: Joining, file: str, tree: ast.AST) -> None:
    """Analyse one module and record its uses."""
    names, optional = import_names(tree), _optional(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in imports(node, relative=False):
                _note(found, file, node.lineno, name, is_guarded=name.partition(".")[0] in optional)
        elif isinstance(node, ast.Attribute) and (name := _meant(dotted(node), names)):
            _note(found, file, node.lineno, name, is_guarded=name.partition(".")[0] in optional)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _NAMES:
            found.variables.append(Use(file=file, line=node.lineno, name=node.value))
    asked, around = _asked(tree, is_entry=file == found.files[0]), _functions(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in _OTHERS and id(node) not in asked:
            found.others.append(Use(file=file, line=node.lineno, name=str(node.value)))
    chosen = asked | _chosen(tree)
    found.names |= names_in(tree)
    found.sure_names |= _names_outside(tree, asked)
    found.free_names |= _names_outside(tree, chosen)
    for node, name in _own_addresses(tree):
        if id(node) not in chosen:
            value = "1" if name == "WORLD_SIZE" else "an address of the node itself"
            reason = f"{file}:{node.lineno} sets {name} to {value}: other nodes do not join"
            found.addresses.append((around.get(id(node), ""), reason))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _meant(dotted(node.func), names)
        if (name.startswith(_FRAMEWORKS) and name.endswith(_GROUPS)) or name == _JAX:
            reason = "" if id(node) in asked else _call_alone(node)
            text = f"{file}:{node.lineno} {reason}: other nodes do not join" if reason else ""
            is_numbered = any(word.arg == "rank" for word in node.keywords)
            found.is_numbered = is_numbered and (found.is_numbered or not found.groups)
            found.groups.append((around.get(id(node), ""), text))
        elif name.startswith(_SPAWNS) and id(node) not in asked:
            found.spawns.append(Use(file=file, line=node.lineno, name=name))
        elif (made := _LIGHTNING.fullmatch(name)) and name.partition(".")[0] not in optional:
            is_open = bool(made[1]) or any(word.arg is None for word in node.keywords)
            found.trainers.append((Use(file=file, line=node.lineno, name=name, launcher=TORCHRUN), is_open))
    for call in _unguarded(tree):
        name = _meant(dotted(call.func), names)
        backend = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "backend")]
        is_nccl = any(isinstance(value, ast.Constant) and value.value == "nccl" for value in backend)
        if name in _GPU_CALLS or (name.endswith(".init_process_group") and is_nccl):
            shown = f"{name}(backend='nccl')" if is_nccl else name
            found.needs_gpus.append(Use(file=file, line=call.lineno, name=shown))


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
    """Return the ids of AST nodes that run only depending on the launcher's variables, after an error,
    or as a script.
    """
    asked, known = set[int](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (names_in(node.value) & _READS or _strings(node.value) & _NAMES):
            known |= {name for target in node.targets for name in _targets(target)}
    for node in ast.walk(tree):
        is_script = isinstance(node, ast.If) and not is_entry and "__name__" in names_in(node.test)
        if is_script or _asks(node, known):
            asked |= {id(each) for each in ast.walk(node)}
    return asked | _behind(tree, lambda node: _asks(node, known), _EXITS)


def _chosen(tree: ast.AST) -> set[int]:
    """Return the ids of AST nodes that run only under a condition in the program, such as a flag `--local`."""

    def is_choice(node: ast.AST) -> bool:
        return isinstance(node, ast.If) and "__name__" not in names_in(node.test)

    below = {id(each) for node in ast.walk(tree) if is_choice(node) for each in ast.walk(node)}
    return below | _behind(tree, is_choice, ast.Return)


def _behind(tree: ast.AST, is_choice: Callable[[ast.AST], bool], exits: type | types.UnionType) -> set[int]:
    """Return the ids of AST nodes that run only if no branch of an earlier choice left the function or program."""
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


def _names_outside(tree: ast.AST, left_out: Collection[int]) -> set[str]:
    """Return the names and attributes that a module uses outside of the given AST nodes."""
    walked = [node for node in ast.walk(tree) if id(node) not in left_out]
    names = {node.id for node in walked if isinstance(node, ast.Name)}
    return names | {node.attr for node in walked if isinstance(node, ast.Attribute)}


def _targets(target: ast.AST) -> Iterator[str]:
    """Yield the names that an assignment sets, such as `distributed` for `args.distributed`."""
    if isinstance(target, ast.Name | ast.Attribute):
        yield target.id if isinstance(target, ast.Name) else target.attr
    elif isinstance(target, ast.Tuple):
        for each in target.elts:
            yield from _targets(each)


def _functions(tree: ast.AST) -> dict[int, str]:
    """Map each AST node's id to the name of its innermost function; "" if that function has a decorator."""
    found: dict[int, str] = {}
    for node in ast.walk(tree):  # the outer ones first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= dict.fromkeys(map(id, ast.walk(node)), "" if node.decorator_list else node.name)
    return found


def _own_addresses(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield value and name of each variable setting that excludes other nodes: a local address, or a
    world size of 1.
    """
    values = dict[str, list[ast.AST]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    for node in ast.walk(tree):
        for owner, name, value in _settings_of(node):
            if dotted(owner).endswith("environ") and (
                (name in _MEETING and _is_own(value, values))
                or (name == "WORLD_SIZE" and isinstance(value, ast.Constant) and str(value.value) == "1")
            ):
                yield value, name


def _settings_of(node: ast.AST) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    """Yield the dictionary, key and value that a statement `d["key"] = value` or a call `d.update` sets."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                yield target.value, str(target.slice.value), node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        for word in node.keywords:
            yield node.func.value, word.arg or "", word.value
        for given in node.args:
            if isinstance(given, ast.Dict):
                for key, value in zip(given.keys, given.values, strict=True):
                    if isinstance(key, ast.Constant):
                        yield node.func.value, str(key.value), value


def _call_alone(call: ast.Call) -> str:
    """Describe how a call that creates a process group excludes other nodes; "" if its arguments show no problem."""
    given = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
    first = [word.value for word in call.args[:2] if isinstance(word, ast.Constant)]
    places = [*first, given.get("init_method")]
    if dotted(call.func).rpartition(".")[2] == "initialize":  # JAX's address has no scheme
        named = (*first[:1], given.get("coordinator_address"))
        places = [f"tcp://{place}" for place in named if isinstance(place, str)]
    if any(_OWN_ADDRESS.match(str(place)) for place in places):
        return "connects to an address of the node itself"
    return "joins only one rank (world_size=1)" if 1 in (given.get("world_size"), given.get("num_processes")) else ""


def _asks(node: ast.AST, known: Collection[str]) -> bool:
    """Return whether a statement depends on an error or on the launcher's variables. `known` are names
    that hold them.
    """
    if isinstance(node, ast.ExceptHandler):
        return True
    return isinstance(node, ast.If) and bool(names_in(node.test) & {*_ASKS, *known} or _strings(node.test) & _NAMES)


def _is_own(value: ast.AST, values: Mapping[str, list[ast.AST]]) -> bool:
    """Return whether a value is certainly a local address. `values` maps names to the values assigned to them."""
    owners = {id(node.value) for node in ast.walk(value) if isinstance(node, ast.Attribute)}
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name) and id(node) not in owners}
    parts = [value, *(each for name in names for each in values.get(name, ()))]
    walked = [node for part in parts for node in ast.walk(part)]
    if any(isinstance(node, ast.IfExp | ast.BoolOp) for node in walked) or any(names_in(p) & _READS for p in parts):
        return False
    return any(_LOCALHOST.fullmatch(text) for part in parts for text in _strings(part))


def _strings(node: ast.AST) -> set[str]:
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _unguarded(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that are not guarded by a condition on the device."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If | ast.IfExp):
            words = names_in(node.test) | _strings(node.test)
            if any(map(_IS_GUARD.search, words)):
                continue
        if isinstance(node, ast.Call):
            yield node
        waiting += reversed(list(ast.iter_child_nodes(node)))

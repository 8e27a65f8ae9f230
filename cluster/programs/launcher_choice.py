"""Detect from a program's entry and sources how its ranks join into one training, and choose the launcher."""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.spec.horovod import MPI
from agent.spec.launchers import HOROVOD, MASTER_PORT, PLAIN, TORCHRUN, has_placeholder
from cluster.errors import UsageError
from cluster.programs.distributed_calls import (
    FOREIGN_VARIABLES,
    JAX_VARIABLES,
    LAUNCHER_VARIABLES,
    LIGHTNING_CALL,
    MPI_VARIABLES,
    POSITION_VARIABLES,
    Sources,
    Use,
)
from cluster.programs.entry_launchers import (
    POSITION_FLAGS,
    has_first_port,
    launcher_settings,
    names_device,
    reason_alone,
)
from cluster.programs.entry_starts import short_text, shown_path, starts
from cluster.programs.localhost_check import OWN_ADDRESS
from cluster.programs.python_ast import imported, modules, parsed_text

_SERVES: Final = {HOROVOD: (HOROVOD,), TORCHRUN: (TORCHRUN,), PLAIN: (PLAIN, TORCHRUN)}
"""The launchers whose programs each launcher can also start: `plain` sets all variables of PyTorch's `env://`."""
_HOROVODS_OWN: Final = ("horovodrun", "mpirun", "mpiexec")
_TRAINER: Final = re.compile(r"^(?:lightning|pytorch_lightning|transformers)\b")
_TARGET: Final = re.compile(
    r"_target_['\"]?:\s*['\"]?(?:lightning|pytorch_lightning|lightning_fabric)\.[\w.]*\b(?:Trainer|Fabric)\b"
)
"""A call of Lightning in a Hydra configuration."""
_NUM_NODES: Final = re.compile(
    r"num[_-]nodes(?!['\"]?\s*[:=]\s*['\"]?1['\"]?[ \t\r]*(?:[,;)}\]#'\"]|$))", re.IGNORECASE | re.MULTILINE
)
_NODES_OF_LIGHTNING: Final = ("PL_TRAINER_NUM_NODES", "LT_NUM_NODES")
_ADDRESS_FLAG: Final = re.compile(r"(?:dist\w*[-_]url|init[-_]method)$")
_GPUS: Final = ("gpu", "cuda")


@dataclasses.dataclass(kw_only=True)
class Joining(Sources):
    """What a program's entry and its sources show about how its ranks join into one training."""

    launchers: list[Use] = dataclasses.field(default_factory=list)
    """Launchers that the entry starts itself."""
    colliding: list[Use] = dataclasses.field(default_factory=list)
    """Launchers in the entry that would listen at the port of `--launcher torchrun`."""
    one_node: str = ""
    """Why Lightning would train on one node; "" if its number of nodes is set."""
    launched_alone: list[str] = dataclasses.field(default_factory=list)
    """Why the entry's launchers do not join the nodes, unless variables such as PET_NNODES set their flags."""
    alone: list[str] = dataclasses.field(default_factory=list)
    """Why the ranks of different nodes do not join."""
    has_placeholder: bool = False

    @property
    def uses(self) -> list[Use]:
        """Return the uses that decide the launcher: calls that join the ranks, or else imports of libraries that can do
        it.

        Imports that may fail are returned only if there are no others.
        """
        return self.calls or [use for use in self.libraries if not use.is_guarded] or self.libraries

    @property
    def _groups(self) -> list[Use]:
        """Return the calls that join ranks without Horovod. Calls of Lightning's and Transformers' trainers are not
        included, because these trainers can also use Horovod.
        """
        return [use for use in self.calls if use.launcher != HOROVOD and not _TRAINER.search(use.name)]

    def choose(self, horovods: str = "") -> tuple[str, str]:
        """Return the name of the launcher to use, and the reason for this choice as a text.

        The first of these decides: `horovods`, a flag for Horovod that the user gave, or ""; a launcher that the entry
        starts itself, which needs `plain`; calls of Horovod, unless others need another launcher (trainers such as
        Lightning's also run on Horovod); the `uses` in the entry's own file, then in all files; variables that the
        program reads. The default is Horovod. Raises UsageError if the uses need different launchers.
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
            if read := [use for use in self.variables if use.name in LAUNCHER_VARIABLES[launcher]]:
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
        """Return why the ranks would not train together on `nodes` nodes, and what to change; "" without a problem.

        `controller` is Horovod's, such as MPI. `variables` are those set with --env. Only the first problem is
        returned. If the entry starts a launcher or has a placeholder, the sources need not contain anything that joins
        the ranks.
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
        given = {*LAUNCHER_VARIABLES[launcher], *variables}
        given = given | {*MPI_VARIABLES} if launcher == HOROVOD and controller == MPI else given - {*MPI_VARIABLES}
        if any(use.name in given for use in self.variables):
            return ""
        others = [use for use in self.others if use.name not in given]
        is_jax = any(use.name == "PROCESS_ID" for use in others)
        others = sorted(
            (use for use in others if (use.name in JAX_VARIABLES) == is_jax), key=lambda use: (use.file, use.line)
        )
        library = "jax.distributed" if is_jax else "torch.distributed"
        if others and all(use.name.startswith(library) for use in self.uses):
            words = " ".join(
                f"{name}={{{FOREIGN_VARIABLES[name]}}}" for name in dict.fromkeys(use.name for use in others)
            )
            mpi = ", or give --controller mpi" if others[0].name in MPI_VARIABLES else ""
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


def examine(directory: Path, words: Sequence[str], entry_words: int, configs: Sequence[Path] = ()) -> Joining:
    """Analyze the sources of the program in `directory`, starting from the words of its entry. Nothing is run.

    Only the first `entry_words` words may contain placeholders. `configs` are configuration files, relative to the
    directory, that may contain settings such as num_nodes. Files that cannot be read or parsed are skipped.
    """
    found = Joining(has_placeholder=any(map(has_placeholder, words[:entry_words])))
    for before, word in zip(("", *words), words, strict=False):
        name, _, value = ("", "", word) if word.startswith(("tcp:", "file:")) else word.partition("=")
        if OWN_ADDRESS.match(value) and _ADDRESS_FLAG.search(name or before):
            found.alone.append(f"{word} in the entry is an address of the node itself: other nodes do not join")
    seen: set[Path] = set()
    installed: list[str] = []
    launched: dict[str, list[Mapping[str, str]]] = {}
    shells: list[str] = []
    for start in starts(directory, words):
        if start.kind == "launcher":
            found.launchers.append(Use(file="the entry", line=0, name=start.name, launcher=PLAIN))
            settings = launcher_settings(start.words, directory)
            launched.setdefault(start.name, []).append(settings)
            if start.name.startswith("accelerate") and not names_device(settings):
                # Without --cpu, accelerate sets ACCELERATE_USE_CPU=False, and the ranks do not join.
                instead = f"give --cpu to {start.name}"
                found.needs_gpus.append(
                    Use(file="the entry", line=0, name=f"{start.name} without --cpu", on_cpus=instead)
                )
            if start.name in ("torchrun", "torch.distributed.run") and has_first_port(settings):
                found.colliding.append(found.launchers[-1])
        elif start.kind == "module":
            installed.append(f"the module {start.name}")
            found.note("the entry", 0, start.name)
        elif start.kind == "shell":
            shells.append(start.text)
            for name in re.findall(r"\$\{?([A-Z_]+)\b", start.text):
                if name in POSITION_VARIABLES:
                    found.variables.append(Use(file=start.name, line=1, name=f"${name}"[1:]))
        elif start.path is None:
            if (tree := parsed_text(start.text)) is not None:
                found.files.append(start.name)
                found.add_module(start.name, tree)
                for path in imported(tree, directory, directory / "text.py", named=True):
                    if path.is_file():
                        _follow(found, directory, path, seen)
        else:
            _follow(found, directory, start.path, seen)
    for name, given in launched.items():
        if any("PET_" in text for text in (*words, *shells)):
            continue  # variables may contain torchrun's flags
        reasons = [reason_alone(name, settings) for settings in given]
        places = {tuple(settings.get(flag) for flag in POSITION_FLAGS) for settings in given}
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


def _follow(found: Joining, directory: Path, script: Path, seen: set[Path]) -> None:
    """Analyze a script and the modules that it imports, except those in `seen`, and add the uses to `found`."""
    if script not in seen:
        for path, tree in modules(directory, script, named=True):
            if path not in seen:
                seen.add(path)
                found.files.append(shown_path(path, directory))
                found.add_module(found.files[-1], tree)


def _asked_gpus(directory: Path, words: Sequence[str], configs: Sequence[Path]) -> Iterator[Use]:
    """Yield the places where the entry asks Lightning for GPUs: in a word, or in a Hydra configuration that a word
    selects.

    If a word sets the accelerator, the configurations are not read.
    """
    given = re.findall(r"(?:^|[\s.+-])accelerator[= ](\w+)", " ".join(words))
    if given:
        if given[-1] in _GPUS:
            yield Use(file="the entry", line=0, name=f"accelerator={given[-1]}")
        return
    chosen = [f"{group.lstrip('+')}/{choice}" for group, _, choice in (word.partition("=") for word in words) if choice]
    for name in configs:
        if any(f"/{name.with_suffix('')}".endswith(f"/{each}") for each in chosen):
            for number, line in enumerate(short_text(directory / name).splitlines(), 1):
                if (found := re.match(r"accelerator:\s*['\"]?(\w+)", line)) and found[1] in _GPUS:
                    yield Use(file=str(name), line=number, name=f"accelerator: {found[1]}")


def _alone(found: Joining) -> Iterator[str]:
    """Yield each reason why ranks of other nodes cannot join: local addresses, and process groups of a single node.

    Code in functions that are never called does not count. If one process group includes all nodes, no group is a
    reason.
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
    """Return the warning that Lightning would train on one node, because nothing sets its number of nodes; ""
    otherwise.

    `words` are those of the entry and its shell texts, `sources` its Python files, `configs` its configuration files.
    Also returns "" without a call of Lightning, if the entry starts a launcher or the program calls Horovod, and if the
    number may be set in a way that is not visible here.
    """
    use = next((use for use in found.calls if LIGHTNING_CALL.match(use.name) and not use.is_guarded), None)
    if use is None or found.launchers or any(each.launcher == HOROVOD for each in found.calls):
        return ""
    if any(is_open for _, is_open in found.trainers):
        return ""
    texts = list(map(short_text, configs))
    if not found.trainers and not any(map(_TARGET.search, texts)):
        return ""  # it is only imported as a type
    if any(map(_NUM_NODES.search, (*words, *texts, *map(short_text, sources)))):
        return ""
    use = found.trainers[0][0] if found.trainers else use
    return f"{use}, and nothing sets num_nodes, which is 1 by default: set it, for example to {{num_nodes}} in --entry"

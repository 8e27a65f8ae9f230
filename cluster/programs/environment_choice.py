"""Choose the environment of a program from its requirements and the nodes, before anything is pushed or started."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from agent.spec.launchers import HOROVOD
from agent.spec.node_kinds import NodeKind, RuntimeKind, runtime_kind
from agent.spec.nodes import MASTER_NAME, Node, workers
from cluster.programs.entry_starts import starts
from cluster.programs.keras3_lint import LEGACY
from cluster.programs.python_environment import RUNTIME, Environment, Wanted
from cluster.programs.requirements_file import RequirementsError
from cluster.programs.requirements_formats import notes
from cluster.programs.user_program import Program
from cluster.ssh import push
from cluster.ssh.push import Tree
from cluster.terminal.status_line import doing

WHEELS: Final = "wheels"
JUPYTERLAB: Final = "jupyterlab"
LOCKS: Final = Path("agent") / "environment"
"""Directory of the runtime's lock files in a checkout."""


def kind_of_hosts(nodes: Sequence[Node], count: int) -> RuntimeKind | None:
    """Return the kind of runtime (processor, GPUs, Python) for a run on the first `count` workers.

    Missing workers are assumed to be like the existing ones, or like the master if there are none. Return None without
    nodes, or if they have not reported their Python. Raises SpecError if the workers are of two kinds.
    """
    known = workers(nodes)[:count] or [node for node in nodes if node.name == MASTER_NAME]
    if not known:
        return None
    kind = runtime_kind({node.name: NodeKind.parse(node.kind) for node in known})
    return kind if kind.python else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedProgram:
    """A program that is ready to push, with the environment for its ranks."""

    tree: Tree
    wheels: Tree | None = None
    """Local wheels for the nodes to install."""
    environment: Environment
    kind: RuntimeKind | None
    """Kind of the hosts that the environment was resolved for; None if it was not resolved."""

    @property
    def trees(self) -> tuple[Tree, ...]:
        """Return the trees to push: the wheels, if there are any, then the program."""
        return (*((self.wheels,) if self.wheels else ()), self.tree)


def pack(
    program: Program,
    nodes: Callable[[], Sequence[Node]],
    count: int,
    launcher: str,
    *,
    project: Path,
    report: Callable[[str], None],
    variables: Collection[str] = (),
) -> PackedProgram:
    """Resolve the environment of a program for `count` workers, and pack the program with its environment.

    `nodes` returns the live nodes. It is called only if the environment depends on them. `launcher` starts the ranks.
    `project` is the directory of the agent that nodes run (FOR_NODES). `variables` are the names of the ranks'
    variables. `report` is called with each note and warning for the user. Nothing is uploaded. Raises SpecError if the
    workers are of two kinds, the errors of `choose`, UploadError, and KerasTrapError for a program that would train
    wrongly in this environment.
    """
    for note in program.upload.notes():
        report(note)
    wanted, kind, environment = program.wanted(horovod=launcher == HOROVOD), None, RUNTIME
    for note in notes(program.directory, program.requirements):
        report(note)
    if program.requirements or wanted.uses_torch or wanted.keras == 2 or wanted.extras or wanted.groups:
        kind = kind_of_hosts(nodes(), count)
        environment = choose(wanted, kind, project=project, report=report)
    begun = list(starts(program.directory, program.entry))
    if scripts := [start.path for start in begun if start.path and start.path.is_relative_to(program.directory)]:
        from cluster.programs import import_check

        def python() -> str:
            known = kind or kind_of_hosts(nodes(), count)
            return known.python if known else ""

        lacking = import_check.missing(
            program.directory, scripts, wanted.uploaded, environment, python, horovod=launcher == HOROVOD
        )
        if lacking:
            report(import_check.describe(lacking, program.requirements))
        in_entry = any("PYTHONPATH=" in word for word in program.entry)
        if (
            not in_entry
            and "PYTHONPATH" not in variables
            and (
                hidden := import_check.unreachable(
                    program.directory, begun, wanted.uploaded, environment, horovod=launcher == HOROVOD
                )
            )
        ):
            report(import_check.describe_unreachable(hidden, program.directory))
    if environment.keras == 3:
        several = 1 if LEGACY in variables else count
        program.check_keras_traps(nodes=several)
        for trap in program.keras_traps(nodes=several):
            report(f"Keras 3: {trap}")
    return _with_environment(program, environment, kind)


def pack_for_notebook(program: Program, node: Node, *, project: Path, report: Callable[[str], None]) -> PackedProgram:
    """Pack the files for a notebook on a node, with requirements that are resolved to be installed over the runtime.

    `project` is as for `pack`. `report` is called with each note for the user. Nothing is uploaded. Raises
    RequirementsError if the requirements do not fit the runtime, or lack JupyterLab, and the other errors of `choose`.
    """
    for note in program.upload.notes():
        report(note)
    wanted = dataclasses.replace(program.wanted(horovod=False), modules=frozenset())
    kind = kind_of_hosts((node,), 1)
    environment = choose(wanted, kind, project=project, report=report)
    if environment.own:
        raise RequirementsError(
            f"a notebook uses the nodes' runtime, but {program.requirements} conflicts with this runtime: "
            f"{environment.why}",
            remedy="change the requirements to match the runtime, or use `fab train`, which can install them in a "
            "separate environment; nothing was uploaded",
        )
    if JUPYTERLAB not in environment.packages:
        raise RequirementsError(
            f"{program.requirements} does not name {JUPYTERLAB}", remedy=f"add {JUPYTERLAB} to this file"
        )
    return _with_environment(program, environment, kind)


def _with_environment(program: Program, environment: Environment, kind: RuntimeKind | None) -> PackedProgram:
    """Pack a program with the lock file of its environment, and the local wheels."""
    wheels = wheels_tree(environment.wheels)
    lock = environment.lock
    if wheels:
        lock = f"--find-links ../../{wheels.name}/{WHEELS}\n{lock}"  # relative to the program's directory on the nodes
    return PackedProgram(tree=program.tree(lock), wheels=wheels, environment=environment, kind=kind)


def wheels_tree(wheels: Sequence[Path]) -> Tree | None:
    """Pack local wheels into a tree, in the folder WHEELS; None if there are none.

    They are separate from the program, so that an edit of the program does not upload them again.
    """
    return push.pack(Path(), (), WHEELS, {f"{WHEELS}/{wheel.name}": wheel for wheel in wheels}) if wheels else None


def choose(wanted: Wanted, kind: RuntimeKind | None, *, project: Path, report: Callable[[str], None]) -> Environment:
    """Resolve the environment that a program needs on hosts of this kind, with uv, which downloads from package
    indexes.

    The runtime's lock files are in `project`, below LOCKS. `report` is called with notes and a summary of the packages.
    Raises RequirementsError, for example if `kind` is None, UnresolvedHereError if this machine cannot resolve the
    requirements, and UvError if uv does not run.
    """
    if kind is None:
        raise RequirementsError(
            f"{wanted.label} cannot be resolved: no node has reported the version of its Python",
            remedy="check the nodes with `fab status`; `fab replace` those that an older deepcdk has set up",
        )
    # Import late: most programs have no requirements and start faster without these modules.
    from cluster.programs.requirements_resolver import Resolver

    with doing(f"resolving {wanted.requirements or 'the program'} with uv"):
        environment = Resolver(kind=kind, locks=project / LOCKS, environ=os.environ).resolve(wanted)
    for note in environment.notes:
        report(note)
    if environment.packages:
        report(str(environment))
    return environment

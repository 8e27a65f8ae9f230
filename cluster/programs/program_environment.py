"""Choose the environment of a program before anything is pushed or started, by its requirements and the nodes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.errors import SpecError
from agent.spec.kinds import NodeKind, RuntimeKind, runtime_kind
from agent.spec.launchers import HOROVOD
from agent.spec.nodes import MASTER_NAME, Node, workers
from cluster.errors import DeepcdkError
from cluster.programs.program import Program
from cluster.programs.program_packages import RUNTIME, Environment, Wanted
from cluster.ssh.push import Tree
from cluster.terminal.status_line import doing

LOCKS: Final = Path("agent") / "environment"
"""Where a checkout has the lock files of the runtime."""


def kind_of_hosts(nodes: Sequence[Node], count: int) -> RuntimeKind | None:
    """Return what the environment of a run on `count` workers is made for, None where nothing tells.

    Workers that are not there yet are taken for such as are, and where none is, for such as the master. Raises
    DeepcdkError for workers of two kinds.
    """
    known = workers(nodes)[:count] or [node for node in nodes if node.name == MASTER_NAME]
    if not known:
        return None
    try:
        kind = runtime_kind({node.name: NodeKind.parse(node.kind) for node in known})
    except SpecError as error:
        raise DeepcdkError(str(error), remedy="`fab status` shows the nodes") from None
    return kind if kind.python else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedProgram:
    """A program as it is pushed, with the environment that its ranks run in."""

    tree: Tree
    environment: Environment
    kind: RuntimeKind | None
    """Of the hosts that the environment was resolved for; None where it was not resolved."""


def pack(
    program: Program,
    nodes: Callable[[], Sequence[Node]],
    count: int,
    launcher: str,
    *,
    project: Path,
    report: Callable[[str], None],
) -> PackedProgram:
    """Resolve the environment of a program on `count` of the live `nodes`, and pack both.

    `project` is the checkout; `report` gets a line for what the user should know. Raises RequirementsError, and
    KerasTrapError for a program that would train wrongly there.
    """
    for note in program.upload.notes():
        report(note)
    wanted, kind, environment = program.wanted(horovod=launcher == HOROVOD), None, RUNTIME
    if program.requirements or wanted.uses_torch:
        kind = kind_of_hosts(nodes(), count)
        environment = choose(wanted, kind, project=project, report=report)
    if environment.keras == 3:
        program.check_keras_traps()
        for trap in program.keras_traps():
            report(f"Keras 3: {trap}")
    return PackedProgram(tree=program.tree(environment.lock), environment=environment, kind=kind)


def choose(wanted: Wanted, kind: RuntimeKind | None, *, project: Path, report: Callable[[str], None]) -> Environment:
    """Return the environment for what a program wants on hosts of this kind. Raises RequirementsError.

    Where this machine cannot resolve it, the nodes lay the requirements over the runtime.
    """
    if kind is None:
        report(f"{wanted.file} is resolved on the nodes: their Python is not known")
        return RUNTIME
    # Not at the top: most programs have no requirements, and start without reading these.
    from cluster.programs.resolution import Resolver
    from cluster.programs.uv_compile import UnresolvedHereError

    try:
        with doing(f"resolving {wanted.requirements or 'the program'} with uv"):
            environment = Resolver(kind=kind, locks=project / LOCKS, environ=os.environ).resolve(wanted)
    except UnresolvedHereError as error:
        if wanted.uses_torch:
            raise
        report(f"{wanted.file} is resolved on the nodes: {error.what}")
        return RUNTIME
    if environment.own:
        report(str(environment))
    return environment

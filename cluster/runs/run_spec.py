"""The spec of a new run, from what the command line says and which nodes are live."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping, Sequence

from agent.errors import SpecError
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from cluster.errors import DeepcdkError
from cluster.runs import launch
from cluster.runs.program import Program
from cluster.session import Session


def specify(
    session: Session,
    work: launch.Training | Program,
    nodes: Sequence[Node],
    count: int,
    *,
    tree: str,
    options: launch.RunOptions,
    cores: Mapping[str, int] | None = None,
) -> RunSpec:
    """Build the spec of a new run. Raises DeepcdkError for one that cannot be."""
    source = work.directory if isinstance(work, Program) else session.project
    try:
        return launch.build(
            session.stack,
            work,
            nodes,
            count,
            agent=session.agent_tree.name,
            tree=tree,
            options=options,
            cores=cores,
            now=datetime.datetime.now(datetime.UTC),
            token=secrets.token_hex(2),
            git_commit=launch.git_commit(source),
        )
    except SpecError as error:
        raise DeepcdkError(str(error), remedy="`fab status` shows the nodes") from None

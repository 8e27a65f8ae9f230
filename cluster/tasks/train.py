"""The task that starts training."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from agent.spec.horovod import Knobs
from agent.spec.run_limits import RunLimits
from cluster.aws.notify_flag import check_notify
from cluster.cli import CODE, PROJECT
from cluster.cli.flags import whole, words_after_dashes
from cluster.cli.task import Key, Notify, Queue, Set, Yes, task
from cluster.nodes.worker_group import check_maximum
from cluster.programs.large_upload import describe_size, is_large
from cluster.programs.user_program import Program
from cluster.runs.dry_run import dry_run_lines, with_planned
from cluster.runs.environment_variables import parse_environment, read_secrets
from cluster.runs.launch import Following
from cluster.runs.recipe_or_program import ProgramFlags, RecipeFlags, Training, read_work
from cluster.runs.run_options import (
    LimitOptions,
    PreflightOptions,
    RankOptions,
    RestartOptions,
    RunOptions,
)
from cluster.runs.train_request import TrainRequest, prepared, specified, with_launcher
from cluster.session import Session
from cluster.terminal.output import print_result, progress_printer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainFlags:
    """Flags that `fab train` and `fab sweep` have in common, as typed: what each run trains, and how."""

    recipe: RecipeFlags
    program: ProgramFlags
    ranks: RankOptions
    env: Annotated[
        tuple[str, ...],
        "environment variable of the ranks, as NAME=VALUE; may be repeated. It is on no command line of the nodes",
    ] = ()
    secret: Annotated[
        tuple[str, ...],
        "secret environment variable of the ranks: NAME takes it from your environment, NAME=@FILE from a file. "
        "Records do not contain it",
    ] = ()
    knobs: Knobs
    preflight: PreflightOptions
    restarts: RestartOptions
    bounds: LimitOptions
    notify: Notify = ()

    def work(self, report: Callable[[str], None], further: Sequence[str]) -> Training | Program:
        """Return what to train: the program, or else the recipe. `further` are the words after `--`. Raises
        DeepcdkError.
        """
        return read_work(self.recipe, with_payload(self.program, report), further, self.ranks)

    def request(self, work: Training | Program, nodes: int, report: Callable[[str], None]) -> TrainRequest:
        """Return the request for a run on `nodes` nodes. Reads the values of the secrets. Raises DeepcdkError."""
        secrets = read_secrets(self.secret, os.environ)
        options = RunOptions(
            environment=parse_environment(self.env),
            secrets=tuple(secrets),
            ranks=with_launcher(work, self.ranks, self.knobs, report),
            knobs=self.knobs,
            preflight=self.preflight,
            restarts=self.restarts,
            bounds=self.bounds.over(RunLimits()),
        )
        check_notify(self.notify)
        return TrainRequest(work=work, nodes=nodes, options=options, secrets=secrets)


@task(takes_words=True, short_flags=False)
def train(
    *,
    set_: Set = (),
    nodes: Annotated[int, "worker nodes to train on; you are asked before nodes are added", whole(lowest=1)] = 2,
    flags: TrainFlags,
    queue: Queue = False,
    yes: Yes = False,
    dry_run: Annotated[bool, "print the launcher's command, and launch nothing"] = False,
    following: Following,
    key: Key = "",
) -> None:
    """
    Train a recipe or your program on N nodes, and watch the run. The run continues without the laptop.

    Example: fab train --nodes 4 --recipe digits --epochs 20

    Example: fab train --recipe imagenet-fast --data-dir /mnt/efs/data/imagenet -- --precision bfloat16 --xla

    Example: fab train --nodes 16 --payload ~/project --entry "train.py --batch-size 64"
    """
    session, report = Session(PROJECT, set_, key=key), progress_printer(json=following.json)
    request = flags.request(flags.work(report, words_after_dashes(sys.argv)), nodes, report)
    trouble = request.check_together(session, yes=yes or dry_run, report=report)
    check_maximum(nodes, session.load_inventory(), session.config.max_workers)
    request = request.resolved(session, flags.notify, then_stop=flags.bounds.then_stop)
    launch = request.launch(session, task="fab train", queue=queue, yes=yes, following=following)
    if not dry_run:
        launch.check_prices(request.options.bounds)
    with session.connect() as master:
        if dry_run:
            packed = request.pack(lambda: session.nodes(master), launch.progress)
            for tree in packed.trees:
                if is_large(tree):
                    launch.progress(describe_size(tree))
            there = session.nodes(master)
            request.check_nodes(session, master, trouble, yes=True, report=launch.progress)
            spec = specified(request, launch, master, packed, with_planned(there, nodes))
            lines = list(dry_run_lines(there, spec))
            print_result({"dry_run": lines}, "\n".join(lines), json=following.json)
            return
        spec = prepared(request, launch, master, trouble, describe=lambda: request.describe(launch))
        supervisor = session.supervisor(master)
        begun = launch.submit(spec, lambda submission: supervisor.start(submission, request.secrets, queue=queue))
        text = f"run {spec.run_id}: {begun.placed(spec)}"
        launch.follow(supervisor, spec.run_id, begun.position, text, log=bool(spec.program))


def with_payload(program: ProgramFlags, report: Callable[[str], None]) -> ProgramFlags:
    """Return the flags. If only --entry is given, the project becomes --payload, and a note is printed.

    A checkout of deepcdk, a home or the root directory is not used.
    """
    if program.payload or not program.entry or PROJECT in (CODE, Path.home().resolve(), Path(PROJECT.anchor)):
        return program
    report(f"--payload is not given, so the program is in the project {PROJECT}")
    return dataclasses.replace(program, payload=str(PROJECT))

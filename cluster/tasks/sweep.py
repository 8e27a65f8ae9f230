"""The task that trains with many values of parameters: one run for each combination and repeat."""

from __future__ import annotations

import dataclasses
import datetime
import os
import secrets as random_secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

from agent.spec.run import RunSpec
from agent.spec.run_id import RUN_ID_RULE, is_run_id, make_run_id
from agent.spec.run_limits import RunLimits
from agent.spec.run_states import FINAL_STATES
from agent.spec.sweep_trial import SEED_VARIABLE, Trial
from cluster.cli import CODE, PROJECT
from cluster.cli.flags import changed, parse_whole, whole, words_after_dashes
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.errors import DeepcdkError, UsageError
from cluster.nodes.worker_group import check_maximum
from cluster.programs.user_program import Program
from cluster.report.shown_values import plural
from cluster.runs.environment_variables import check_secrets, read_secrets
from cluster.runs.launch import Following, Launch
from cluster.runs.recipe_or_program import ProgramFlags, Training
from cluster.runs.run_spec import stored_spec
from cluster.runs.train_request import prepared
from cluster.session import Session
from cluster.ssh.master import Master
from cluster.sweeps import commands
from cluster.sweeps.estimate import SweepEstimate, chosen_combinations, estimated
from cluster.sweeps.plan import MAX_SEED, SEED, Pairs, Plan, read_plan
from cluster.tasks.runs import of_sweep
from cluster.tasks.train import TrainFlags
from cluster.terminal.confirmation import confirm
from cluster.terminal.output import print_result, progress_printer
from cluster.terminal.tables import Table, print_table

IN_A_CALL: Final = 100
"""Runs that are sent to the master together."""
TASK: Final = "fab sweep"
PRICE_WAIT_S: Final = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFlags:
    """Flags for the parameters of a sweep."""

    grid: Annotated[
        tuple[str, ...],
        "values of a parameter: NAME=A,B,C, NAME=FIRST..LAST..STEP, NAME=@FILE, or with --samples NAME=uniform(A,B), "
        "loguniform, randint, lograndint, normal; may be repeated",
    ] = ()
    samples: Annotated[int, "number of combinations to draw at random; default: all combinations", whole(lowest=1)] = 0
    repeats: Annotated[int, "runs of each combination, each with its own seed", whole(lowest=1)] = 1
    nodes_each: Annotated[str, "nodes of each run; to try several numbers, separate them by commas"] = "1"
    nodes: Annotated[
        int,
        "workers for all runs; the group grows to this number, after asking; default: the present workers",
        whole(lowest=1),
    ] = 0
    name: Annotated[str, "name of the sweep; default: time and recipe or program"] = ""


@task(takes_words=True, short_flags=False)
def sweep(
    *,
    set_: Set = (),
    sweep: SweepFlags,
    resume: Annotated[str, "name of a sweep: queue its missing runs again, with the code of the first call"] = "",
    flags: TrainFlags,
    yes: Yes = False,
    dry_run: Annotated[bool, "show the runs, with their number, time and price, and start nothing"] = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Train once for each combination of values, several runs at a time, and queue the runs on the master.

    Shows the number of runs, the time and the price, and asks.

    Example: fab sweep --recipe fashion-mnist --grid augmented-epochs=0,25,50 --repeats 2

    Example: fab sweep --entry "train.py --lr {lr} --depth {depth}" --grid lr=0.1,0.01 --grid depth=2..6..2

    Example: fab sweep --recipe digits --grid "learning-rate=loguniform(1e-3,1)" --samples 20

    Example: fab sweep --resume 20261120-121314-sweep-digits-ab12
    """
    session, following = Session(PROJECT, set_, key=key), Following(detach=True, json=json)
    if sweep.name and not is_run_id(sweep.name):
        raise UsageError("--name", sweep.name, f"must be {RUN_ID_RULE}")
    given = [name for name in (*changed(sweep), *changed(flags)) if name not in ("--nodes", "--secret")]
    if resume and (given or words_after_dashes(sys.argv)):
        rule = f"keeps all settings of the sweep; leave out {', '.join(given) or 'the words after --'}"
        raise UsageError("--resume", resume, rule)
    asked = Asked(session=session, sweep=sweep, flags=flags, following=following, yes=yes, dry_run=dry_run)
    if resume:
        asked.resume(resume)
    else:
        asked.begin()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """A call of `fab sweep`: its flags, and the cluster."""

    session: Session
    sweep: SweepFlags
    flags: TrainFlags
    following: Following
    yes: bool
    dry_run: bool

    def begin(self) -> None:
        """Queue the runs of a new sweep, after a question about its size and price. A dry run only prints them.

        Raises DeepcdkError.
        """
        session, report = self.session, progress_printer(json=self.following.json)
        plan, work = self.plan(report)
        request = self.flags.request(work, plan.max_nodes, report)
        if isinstance(work, Program) and plan.repeats > 1 and not any(f"{{{SEED}}}" in word for word in plan.command):
            report(f"repeats differ only in {SEED_VARIABLE}: read it in your program, or put {{{SEED}}} into --entry")
        trouble = request.check_together(session, yes=self.yes or self.dry_run, report=report)
        now, token = datetime.datetime.now(datetime.UTC), random_secrets.token_hex(2)
        trials = plan.trials(self.sweep.name or make_run_id(now, f"sweep-{work.label}", token))
        ranks = request.options.ranks.ranks_per_node
        estimate = self.ask(plan, trials, work, ranks, request.options.bounds)
        if self.dry_run:
            return
        request = request.resolved(session, self.flags.notify, then_stop=self.flags.bounds.then_stop)
        launch = request.launch(session, task=TASK, queue=True, yes=self.yes, following=self.following)
        launch.check_prices(request.options.bounds)
        with session.connect() as master:
            if any(
                (run.get("trial") or {}).get("sweep") == trials[0].sweep for run in session.supervisor(master).runs()
            ):
                raise UsageError("--name", trials[0].sweep, "is the name of an earlier sweep; choose another")
            wanted = max(self.sweep.nodes, plan.max_nodes)
            spec = prepared(request, launch, master, trouble, describe=lambda: None, size=wanted)
            specs = commands.specs_of(plan, trials, spec, now=now, token=token)
            self.queue(launch, master, specs, estimate, request.secrets)

    def plan(self, report: Callable[[str], None]) -> tuple[Plan, Training | Program]:
        """Return the sweep's plan, and what to train; a program has the values of the first combination.

        Raises UsageError for invalid flags. `report` prints notes.
        """
        flags, sweep, further = self.flags, self.sweep, words_after_dashes(sys.argv)
        seed = parse_whole("--seed", flags.recipe.seed or "1", lowest=0, highest=MAX_SEED)
        plan = read_plan(sweep.grid, samples=sweep.samples, repeats=sweep.repeats, seed=seed, nodes=sweep.nodes_each)
        is_recipe = not (flags.program.payload or flags.program.entry)
        if is_recipe and isinstance(work := flags.work(report, further), Training):
            return commands.with_recipe_command(plan, work, flags.recipe), work
        own = dataclasses.replace(flags, recipe=dataclasses.replace(flags.recipe, seed=""))  # repeats have seeds

        def read(program: ProgramFlags, further: Sequence[str]) -> Program:
            found = dataclasses.replace(own, program=program).work(report, further)
            if not isinstance(found, Program):
                raise UsageError("--entry", program.entry, "needs --payload DIRECTORY, the directory of your program")
            return found

        return commands.with_program_command(plan, flags.program, further, read)

    def resume(self, name: str) -> None:
        """Queue the missing runs of a sweep, after a question. A dry run only prints them. Raises DeepcdkError.

        Runs that succeeded, wait or are live are not missing.
        """
        session, secrets = self.session, read_secrets(self.flags.secret, os.environ)
        with session.connect() as master:
            supervisor = session.supervisor(master)
            runs = of_sweep(supervisor.runs(), name)
            with_plan = [run for run in runs if run["run_id"] == run["trial"].get("first")]
            if not with_plan:
                first = runs[-1]["trial"].get("first")
                raise DeepcdkError(
                    f"sweep {name} cannot be resumed: run {first}, which has its plan, was removed",
                    remedy="start a new sweep",
                )
            record = supervisor.show(str(with_plan[-1]["run_id"]))
            spec = stored_spec(record, remedy="start a new sweep with `fab sweep`")
            plan = Plan.from_json(spec.trial.plan)
            trials = missing(plan, name, [(run["trial"]["number"], run["state"]) for run in runs])
            if not trials:
                raise DeepcdkError(
                    f"sweep {name} has no missing runs", remedy=f"`fab compare {name}` compares its runs"
                )
            check_secrets(spec.run_id, spec.secrets, secrets)
            ranks = f"{spec.ranks_per_node or ''}"
            work = None if spec.program else Training(recipe=spec.recipe)
            estimate = self.ask(plan, trials, work, ranks, spec.bounds)
            if self.dry_run:
                return
            launch = Launch(session, CODE, task=TASK, queue=True, yes=self.yes, following=self.following)
            launch.check_prices(spec.bounds)
            count = max(self.sweep.nodes, plan.max_nodes)
            found = launch.free_nodes(master, count, supervisor.occupancy())
            spec = launch.configured(commands.renewed(plan, spec, found, agent=session.agent_tree.name))
            now, token = datetime.datetime.now(datetime.UTC), random_secrets.token_hex(2)
            self.queue(launch, master, commands.specs_of(plan, trials, spec, now=now, token=token), estimate, secrets)

    def ask(
        self, plan: Plan, trials: Sequence[Trial], work: Training | Program | None, ranks: str, bounds: RunLimits
    ) -> SweepEstimate:
        """Print the number of runs, the time and the price, and ask; for a dry run, print the runs instead. Return the
        estimate.

        `work` is None for a resumed program, whose time is unknown. `ranks` is --ranks-per-node. Raises DeepcdkError
        unless the answer is yes.
        """
        from cluster.planner.run_estimate import RunEstimate, estimate_run

        session, inventory = self.session, self.session.load_inventory()
        size = max(self.sweep.nodes, plan.max_nodes)
        check_maximum(size, inventory, session.config.max_workers)
        size = max(size, len(inventory.workers))
        kind = inventory.workers[0].type if inventory.workers else session.config.worker_instance_type
        price = session.prices.per_hour([kind], PRICE_WAIT_S)[kind]
        known = dict[Pairs, RunEstimate | None]()
        for trial in chosen_combinations(trials):
            if isinstance(work, Training):
                found = estimate_run(
                    commands.training_of(plan, trial, work).settings,
                    kind,
                    plan.nodes_of(trial),
                    session.config,
                    nodes_are_up=True,
                    usd_per_hour=price,
                    ranks_per_node=ranks,
                    calibration=session.calibration,
                )
                known[trial.parameters] = found if isinstance(found, RunEstimate) else None
        estimate = estimated(plan, trials, size, known)
        used = estimate.at_once * plan.max_nodes
        text = f"sweep {trials[0].sweep}: {estimate.describe(bounds, None if price is None else used * price)}"
        if self.dry_run:
            rows = [{**_document(trial), "command": commands.command_of(plan, trial, "RUN")} for trial in trials]
            if self.following.json:
                print_result({"sweep": trials[0].sweep, "runs": rows, "estimate": estimate.document()}, json=True)
            else:
                print_table(_table(plan, trials, text))
        else:
            confirm(f"{text}. Start it?", yes=self.yes)
            if self.yes:
                progress_printer(json=self.following.json)(text)
        return estimate

    def queue(
        self,
        launch: Launch,
        master: Master,
        specs: Sequence[RunSpec],
        estimate: SweepEstimate,
        secrets: Mapping[str, str],
    ) -> None:
        """Queue the runs on the master, and print the commands to list, compare and stop them.

        If that fails or is interrupted, print how many runs are queued. Raises DeepcdkError.
        """
        supervisor, name, report = self.session.supervisor(master), specs[0].trial.sweep, launch.progress
        largest = max(specs, key=lambda spec: len(spec.hosts))
        origin = launch.submission(largest).origin
        for first in range(0, len(specs), IN_A_CALL):
            part = specs[first : first + IN_A_CALL]
            try:
                supervisor.enqueue(origin, [(spec, estimate.of(spec.trial)) for spec in part], secrets)
            except (DeepcdkError, KeyboardInterrupt):
                report(f"{first:,} of {len(specs):,} runs are queued; `fab sweep --resume {name}` queues the others")
                raise
        report(f"sweep {name}: {plural(len(specs), 'run')} in the queue, {estimate.at_once} at a time")
        report(
            f"the runs continue without the laptop; `fab runs --sweep {name}` lists them, "
            f"`fab compare {name}` compares them, `fab stop --sweep {name}` stops them"
        )
        if self.following.json:
            runs = [{"run_id": spec.run_id, **_document(spec.trial)} for spec in specs]
            print_result({"sweep": name, "runs": runs, "estimate": estimate.document()}, json=True)


def missing(plan: Plan, name: str, states: Sequence[tuple[int, str]]) -> list[Trial]:
    """Return the runs of a sweep that are missing. Those that have failed before come last.

    `states` has the number and state of each run. A run is missing unless one with its number succeeded, is live or
    waits.
    """
    there = {number for number, state in states if state == "succeeded" or state not in FINAL_STATES}
    tried = {number for number, state in states if state == "failed"}
    trials = [trial for trial in plan.trials(name) if trial.number not in there]
    return sorted(trials, key=lambda trial: trial.number in tried)


def _document(trial: Trial) -> dict[str, object]:
    """Return a run's place in a sweep as JSON values: number, parameters, repeat and seed."""
    return {
        "number": trial.number,
        "parameters": dict(trial.parameters),
        "repeat": trial.repeat,
        "seed": trial.seed,
    }


def _table(plan: Plan, trials: Sequence[Trial], title: str) -> Table:
    """Build the table of the runs of a dry run: number, parameters, repeat and seed."""
    rows = tuple(
        (
            str(trial.number),
            *(value for _, value in trial.parameters),
            str(trial.repeat),
            "-" if trial.seed is None else str(trial.seed),
        )
        for trial in trials
    )
    return Table(title=title, columns=("run", *(each.name for each in plan.parameters), "repeat", "seed"), rows=rows)

"""The cost meter of a run: it adds up all attempts, warns once, and detects the limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.runs import run_cost, run_record
from agent.runs.run_directory import ORIGIN_FILE, RunDirectory
from agent.spec.run import RunSpec
from agent.spec.run_limits import RunLimits
from agent.spec.submission import Origin
from agent.supervisor.cost_meter import UNPRICED, Meter
from tests.factories import MASTER_ID, make_node, make_nodes, make_spec

KINDS = {MASTER_ID: "t3.medium", "i-00000001": "c5.2xlarge", "i-00000002": "c5.2xlarge"}
ORIGIN = Origin(
    master=MASTER_ID, instance_types=KINDS, worker_types=("c5.2xlarge", "c5.4xlarge"),
    usd_per_hour={"t3.medium": 0.5, "c5.2xlarge": 1.0, "c5.4xlarge": 2.0},
)  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(path=tmp_path)
    run_record.write_origin(found, ORIGIN)
    return found


def spec(hosts: int = 2, **bounds: float) -> RunSpec:
    return make_spec(hosts=make_nodes(hosts), bounds=RunLimits(**bounds))


def meter(directory: RunDirectory, clock: Clock, of: RunSpec) -> Meter:
    found = Meter(directory, clock, clock)
    found.take(of)
    return found


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[]", '{"instance_types": 3}', json.dumps({"instance_types": {MASTER_ID: []}, "usd_per_hour": 1})],
    ids=["deep", "no object", "no types", "no prices"],
)
def test_damaged_origin_means_unknown_price(directory: RunDirectory, clock: Clock, text: str) -> None:
    (directory.path / ORIGIN_FILE).write_text(text)
    assert meter(directory, clock, spec(max_usd=1.0)).look() == ("", UNPRICED)


def test_meter_warns_once_at_80_percent_and_then_reports_limit(directory: RunDirectory, clock: Clock) -> None:
    watched = meter(directory, clock, spec(max_hours=1.0))
    told = []
    for _ in range(12):
        clock.now += 360
        told.append(watched.look())
    assert told[:7] == [("", "")] * 7
    warning, reached = told[7]
    assert (warning.partition(":")[0], reached) == ("80% of a limit is used, --max-hours 1", "")
    assert warning.endswith("at the limit the run is stopped, as by `fab stop`"), "a program may write no checkpoint"
    assert told[8] == ("", "")
    assert told[9] == ("", "reached --max-hours 1: 1 h of 1 h, $2.50")


def test_price_includes_nodes_and_master(directory: RunDirectory, clock: Clock) -> None:
    watched = meter(directory, clock, spec(max_usd=5.0))
    clock.now += 3600
    assert watched.look() == ("", "")
    clock.now += 3600
    assert watched.look()[1] == "reached --max-cost 5: $5 of $5 after 2 h"


def test_restart_on_fewer_nodes_costs_less_from_then_on(directory: RunDirectory, clock: Clock) -> None:
    watched = meter(directory, clock, spec(max_usd=10.0))
    clock.now += 3600
    watched.take(spec(hosts=1, max_usd=10.0))
    clock.now += 3600
    watched.write()
    found = run_cost.read_spent(directory)
    assert found is not None
    assert (found.seconds, found.usd_per_hour) == (7200, 1.5)
    assert found.usd == pytest.approx(4.0)
    assert found.ends == pytest.approx(clock.now + 4 * 3600)


def test_replacement_counts_as_most_expensive_type_of_group(directory: RunDirectory, clock: Clock) -> None:
    Meter(directory, clock, clock)
    watched = meter(directory, clock, make_spec(hosts=(make_node(1), make_node(7)), bounds=RunLimits(max_usd=1.0)))
    watched.write()
    found = run_cost.read_spent(directory)
    assert found is not None and found.usd_per_hour == 3.5


def test_next_supervisor_continues_from_recorded_spending(directory: RunDirectory, clock: Clock) -> None:
    first = meter(directory, clock, spec(max_hours=1.0))
    clock.now += 3000
    assert first.look()[0]
    first.write(ended=True)
    found = run_cost.read_spent(directory)
    assert found is not None and found.ends is None
    clock.now += 1e6  # which does not count
    second = meter(directory, clock, spec(max_hours=1.0))
    assert second.look() == ("", ""), "who resumes it has been told"
    clock.now += 600
    assert second.look()[1].startswith("reached --max-hours 1: 1 h of 1 h")
    third = meter(directory, clock, spec(max_hours=10.0))
    assert third.look() == ("", ""), "another bound"


def test_spending_is_written_every_five_seconds_for_display(directory: RunDirectory, clock: Clock) -> None:
    watched = meter(directory, clock, spec(max_hours=1.0))
    watched.look()
    clock.now += 1
    watched.look()
    before = run_cost.read_spent(directory)
    clock.now += 5
    watched.look()
    after = run_cost.read_spent(directory)
    assert before is not None and after is not None
    assert (before.seconds, after.seconds, after.counted) == (0.0, 6.0, clock.now)
    assert before.ends == after.ends == 1000.0 + 3600


def test_limit_on_unknown_cost_is_not_enforced(tmp_path: Path, clock: Clock) -> None:
    watched = meter(RunDirectory(path=tmp_path), clock, spec(max_usd=5.0))
    assert watched.look() == ("", UNPRICED)
    assert meter(RunDirectory(path=tmp_path), clock, spec(max_hours=5.0)).look() == ("", "")


def test_spending_is_counted_without_limits(directory: RunDirectory, clock: Clock) -> None:
    watched = meter(directory, clock, spec())
    clock.now += 3600
    assert watched.look() == ("", "")
    watched.write(ended=True)
    kept = json.loads((directory.path / run_cost.SPENT_FILE).read_text())
    assert (kept["seconds"], kept["usd"], kept["ends"]) == (3600, 2.5, None)

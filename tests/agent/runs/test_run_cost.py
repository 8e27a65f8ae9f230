"""The cost of a run's nodes, on demand and on spot: known only if all prices are."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from agent.runs import run_cost
from agent.runs.run_cost import NODE_MARGIN_S, SPENT_FILE, Spent, cost
from agent.runs.run_directory import RunDirectory
from agent.spec.nodes import Node
from agent.spec.submission import Origin, Submission
from tests.agent.runs.test_run_record import ORIGIN, SPEC
from tests.factories import make_nodes

LIVE = Spent(seconds=100.0, usd=1.0, usd_per_hour=36.0, counted=1000.0, ends=1500.0)


def on_spot(origin: Origin, *more: Node) -> dict[str, Any] | None:
    submitted = Submission.from_json(Submission(spec=SPEC, origin=origin).to_json()).origin
    hosts = [*SPEC.hosts, *more]
    return run_cost.on_spot(dataclasses.asdict(submitted), {"hosts": [host.__dict__ for host in hosts]}, 3600.0)


def test_record_has_cost_of_spot_nodes() -> None:
    spot = dataclasses.replace(
        ORIGIN, spot=("i-00000001",), spot_usd_per_hour={"c5.2xlarge": 0.14}, spot_prices_of="2026-11-20"
    )
    assert on_spot(ORIGIN) is None
    assert on_spot(spot) == {"hosts": 1, "usd": pytest.approx(0.14 + 0.0416), "prices_of": "2026-11-20"}
    assert on_spot(dataclasses.replace(spot, spot_usd_per_hour={})) == {
        "hosts": 1,
        "usd": None,
        "prices_of": "2026-11-20",
    }
    assert on_spot(dataclasses.replace(spot, spot=("i-00000009",))) is None


def test_later_node_counts_as_spot_if_all_others_were() -> None:
    later = make_nodes(2)[1]
    kinds = {**ORIGIN.instance_types, "i-00000003": "c5.2xlarge"}
    spot = dataclasses.replace(
        ORIGIN, instance_types=kinds, spot=("i-00000001", "i-00000003"), spot_usd_per_hour={"c5.2xlarge": 0.14}
    )
    assert on_spot(spot, later) == {"hosts": 2, "usd": pytest.approx(2 * 0.14 + 0.0416), "prices_of": ""}
    mixed = dataclasses.replace(spot, spot=("i-00000001",))
    assert on_spot(mixed, later) == {"hosts": 1, "usd": pytest.approx(0.14 + 0.34 + 0.0416), "prices_of": ""}


def test_cost_needs_all_prices() -> None:
    spec = json.loads(SPEC.to_json())
    origin = {
        "instance_types": {"i-00000001": "a", "i-000000ff": "b"},
        "master": "i-000000ff",
        "usd_per_hour": {"a": 2.0, "b": 1.0},
    }
    assert cost(origin, spec, 1800) == 1.5
    assert cost({**origin, "usd_per_hour": {"a": 2.0, "b": None}}, spec, 1800) is None
    assert cost({**origin, "instance_types": {"i-000000ff": "b"}}, spec, 1800) is None
    # A replacement for a lost node, with an instance type that the launch did not know.
    alike = {**origin, "instance_types": {"i-00000009": "a", "i-000000ff": "b"}}
    assert cost(alike, spec, 1800) == 1.5
    mixed = {**origin, "instance_types": {"i-00000008": "b", "i-00000009": "a", "i-000000ff": "b"}}
    assert cost(mixed, spec, 1800) is None
    assert cost(None, spec, 1800) is None
    assert cost({}, spec, 1800) is None


def test_spending_is_read_back(tmp_path: Path) -> None:
    directory = RunDirectory(path=tmp_path)
    run_cost.write_spent(directory, LIVE)
    assert run_cost.read_spent(directory) == LIVE


@pytest.mark.parametrize("text", ["", "[]", '{"seconds": 1, "unknown": 2}'])
def test_invalid_file_counts_as_missing(tmp_path: Path, text: str) -> None:
    directory = RunDirectory(path=tmp_path)
    assert run_cost.read_spent(directory) is None
    (tmp_path / SPENT_FILE).write_text(text)
    assert run_cost.read_spent(directory) is None


def test_time_without_supervisor_counts_until_loss_is_detected(tmp_path: Path) -> None:
    directory = RunDirectory(path=tmp_path)
    run_cost.write_spent(directory, LIVE)
    run_cost.settle_spent(directory, now=1200.0)
    found = run_cost.read_spent(directory)
    assert found == Spent(seconds=300.0, usd=3.0, usd_per_hour=36.0, counted=1200.0)
    run_cost.settle_spent(directory, now=9000.0)
    assert run_cost.read_spent(directory) == found, "the attempt has been counted"


def test_time_counts_no_longer_than_ranks_may_run(tmp_path: Path) -> None:
    directory = RunDirectory(path=tmp_path)
    run_cost.write_spent(directory, LIVE)
    run_cost.settle_spent(directory, now=1e9)
    found = run_cost.read_spent(directory)
    assert found is not None and found.seconds == 100.0 + 500.0 + NODE_MARGIN_S


def test_time_without_supervisor_does_not_count_without_limits(tmp_path: Path) -> None:
    directory = RunDirectory(path=tmp_path)
    run_cost.settle_spent(directory, now=1e9)
    assert run_cost.read_spent(directory) is None


@pytest.mark.parametrize(
    "damage", [{"seconds": "1"}, {"usd": [1]}, {"usd": -1.0}, {"ends": float("inf")}, {"counted": None}, {"reached": 1}]
)
def test_damaged_spent_file_counts_as_missing(tmp_path: Path, damage: dict[str, Any]) -> None:
    directory = RunDirectory(path=tmp_path)
    run_cost.write_spent(directory, LIVE)
    assert run_cost.read_spent(directory) == LIVE
    (tmp_path / SPENT_FILE).write_text(json.dumps({**LIVE.to_document(), **damage}))
    assert run_cost.read_spent(directory) is None

"""The runs of a sweep in the queue: the first one starts alone, and holds the others if it fails immediately."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.runs import liveness, run_queue, run_record
from agent.runs.node_claims import Runs
from agent.spec.run import RunSpec
from agent.spec.sweep_trial import Trial
from agent.supervisor import submit, sweep_queue
from tests.factories import AGENT, PAYLOAD, make_nodes, make_spec, make_state


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Return the runs of a master with the trees of the factories."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    for tree in (AGENT, PAYLOAD):
        (tmp_path / "payloads" / tree).mkdir(parents=True)
    yield Runs(root=tmp_path / "runs")
    liveness.let_go("one")


def specs(runs: Runs) -> list[RunSpec]:
    """Return the specs of a sweep of three runs: one, two, three."""
    trial = Trial(sweep="s", first="one", repeat=1)
    return [
        make_spec(run_id=run_id, efs_mount=str(runs.root.parent), hosts=make_nodes(1), trial=trial)
        for run_id in ("one", "two", "three")
    ]


def enqueue(runs: Runs) -> list[RunSpec]:
    """Queue the sweep as the laptop sends it; return its specs."""
    found = specs(runs)
    entries = [{"spec": json.loads(spec.to_json()), "estimate": {"usd": n}} for n, spec in enumerate(found)]
    sent = json.dumps({"origin": {"stack": "deepcdk"}, "runs": entries})
    assert [submit.enqueue(runs, each).run_id for each in sweep_queue.parse(sent)] == ["one", "two", "three"]
    return found


def first_is(runs: Runs, state: str, *, after_s: float = 5.0, launched: bool = True, **changes: object) -> None:
    """Store the current state of the first run, launched `after_s` seconds ago."""
    now = time.time()
    if state in ("starting", "running") and not liveness.is_held("one"):
        liveness.hold("one")
    times = {"times": {"launched": now - after_s} if launched else {}, **changes}
    runs["one"].write(runs["one"].path / "course.json", json.dumps(times))
    exit_code = 2 if state == "failed" and launched else None
    runs["one"].write_state(
        make_state(state=state, started=now - 60, updated=now, exit_code=exit_code, reason="status 2")
    )


def test_runs_of_a_sweep_wait_in_their_order_with_their_own_estimates(runs: Runs) -> None:
    enqueue(runs)
    assert run_queue.ids() == ["one", "two", "three"]
    assert run_record.record(runs["three"])["origin"]["estimate"] == {"usd": 2}
    assert runs["two"].trial() == {
        "sweep": "s", "number": 0, "parameters": (), "repeat": 1, "seed": None, "first": "one",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"origin": 3, "runs": [{}]}', '{"origin": {}, "runs": [{"spec": 1}]}']
)
def test_damaged_request_is_rejected(text: str) -> None:
    with pytest.raises(
        SpecError, match=r"^the laptop sent an invalid .*; repeat the command$|^the run's spec is invalid: "
    ):
        sweep_queue.parse(text)


def test_other_runs_wait_until_the_first_one_has_trained_for_a_while(runs: Runs) -> None:
    one, two, _ = enqueue(runs)
    assert (sweep_queue.reason_to_wait(runs, one), sweep_queue.reason_to_wait(runs, two)) == (
        "",
        "",
    )  # it is waiting itself
    for state, launched, after_s in (("starting", False, 0.0), ("running", True, 1.0)):
        first_is(runs, state, launched=launched, after_s=after_s)
        assert "until the first run of the sweep, one, has trained" in sweep_queue.reason_to_wait(runs, two)
    runs["one"].metrics.write_text('{"event": "epoch"}\n')
    assert sweep_queue.reason_to_wait(runs, two) == ""
    runs["one"].metrics.unlink()
    first_is(runs, "running", after_s=sweep_queue.SETTLED_S + 1)
    assert sweep_queue.reason_to_wait(runs, two) == ""
    first_is(runs, "stopped")
    assert (sweep_queue.reason_to_wait(runs, two), sweep_queue.reason_to_hold(runs, two)) == ("", "")


def test_error_of_the_first_run_holds_the_others(runs: Runs) -> None:
    one, two, _ = enqueue(runs)
    first_is(runs, "failed")
    held = sweep_queue.reason_to_hold(runs, two)
    assert held.startswith("not started: one, the first run of sweep s, failed immediately: status 2; ")
    assert "fab sweep --resume s" in held
    assert sweep_queue.reason_to_hold(runs, one) == ""


@pytest.mark.parametrize("why", ["late", "before its launch", "after a restart", "removed", "no sweep"])
def test_other_failures_of_the_first_run_hold_nothing(runs: Runs, why: str) -> None:
    _, two, _ = enqueue(runs)
    if why == "late":
        first_is(runs, "failed", after_s=sweep_queue.AT_ONCE_S + 1)
    elif why == "after a restart":
        first_is(runs, "failed", restarts=[{"for": "a lost node"}])
    else:
        first_is(runs, "failed", launched=why != "before its launch")
    if why == "removed":
        two = dataclasses.replace(two, trial=dataclasses.replace(two.trial, first="gone"))
    if why == "no sweep":
        two = dataclasses.replace(two, trial=Trial())
    assert sweep_queue.reason_to_hold(runs, two) == ""

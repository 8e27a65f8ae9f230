"""Facts about the tasks that change a cluster: only what was shown and agreed to is executed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cluster import deployment, liveness
from cluster.deployment import Plan
from cluster.effects import Effect
from cluster.tasks import lifetime


def plan_that(details: str, ends_run: str = "") -> Plan:
    effect = Effect(
        action="changed", noun="group of nodes", what="group of nodes Workers", details=details, ends_run=ends_run,
        loses=bool(ends_run),
    )  # fmt: skip
    return Plan(stack="deepcdk", assembly=Path("/assembly"), unchanged=False, effects=(effect,))


class Change:
    """A change of a stack; its groups have the next of these effects after each answer, the last again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *later: Plan) -> None:
        self.later, self.asked, self.told, self.ended = list(later), list[str](), list[str](), list[str]()
        monkeypatch.setattr(lifetime, "confirm", lambda question, *, yes: self.asked.append(question))
        monkeypatch.setattr(deployment, "read_sizes", lambda aws, plan: self.later.pop(0) if self.later else plan)
        monkeypatch.setattr(liveness, "allow", self._allow)
        monkeypatch.setattr(liveness, "end", lambda session, run_id, tell: self.ended.append(run_id))
        self.live = ""

    def _allow(self, session: Any, doing: str, reasons: tuple[str, ...], *, force: bool) -> str:
        if self.live and not force:
            raise liveness.EndsRunError(doing, self.live, "", reasons)
        return self.live

    def permit(self, plan: Plan, *, force: bool = False) -> Plan:
        session: Any = type("Session", (), {"aws": None})()
        return lifetime._permit(session, plan, self.told.append, new=False, force=force, yes=False, aside=True)


def test_a_change_is_asked_for_once_where_the_groups_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, change = plan_that("2 more nodes start"), Change(monkeypatch)
    assert change.permit(plan) is plan
    assert len(change.asked) == 1


def test_a_group_that_grew_while_the_question_stood_is_shown_and_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown = plan_that("4 of 8 nodes END", "4 of 8 nodes end")
    change = Change(monkeypatch, grown, dataclasses.replace(grown))
    assert change.permit(plan_that("2 more nodes start")) == grown
    assert len(change.asked) == 2
    assert "a group has got another size meanwhile; what the change does now:" in change.told
    assert any("4 of 8 nodes END" in line for line in change.told)


def test_a_run_that_began_on_nodes_that_came_while_the_question_stood_is_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = Change(monkeypatch, plan_that("4 of 8 nodes END", "4 of 8 nodes end"))
    change.live = "one"
    with pytest.raises(liveness.EndsRunError, match="run one is live"):
        change.permit(plan_that("2 more nodes start"))
    assert change.ended == []

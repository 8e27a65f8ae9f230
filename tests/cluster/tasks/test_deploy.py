"""Tasks that change a cluster: they execute only changes that were shown and confirmed."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cluster.aws import inventory
from cluster.aws.stack import DELETING, BeingDestroyedError
from cluster.deploy import bootstrap, cdk, change_set, key_pair
from cluster.deploy.change_effects import Effect
from cluster.deploy.change_set import OvertakenError, Plan
from cluster.errors import DeepcdkError
from cluster.nodes import live_runs, status
from cluster.ssh.user_keys import UserKey
from cluster.tasks import deploy
from tests.factories import make_inventory


def plan_that(details: str, stops_run: str = "") -> Plan:
    effect = Effect(
        action="changed", noun="group of nodes", what="group of nodes Workers", details=details, stops_run=stops_run,
        loses=bool(stops_run),
    )  # fmt: skip
    return Plan(stack="deepcdk", assembly=Path("/assembly"), unchanged=False, effects=(effect,))


class Change:
    """A change of a stack. After each answer, its groups have the next of these effects; the last one is repeated."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *later: Plan) -> None:
        self.later, self.asked, self.told, self.ended = list(later), list[str](), list[str](), list[tuple[str, ...]]()
        monkeypatch.setattr(deploy, "confirm", lambda question, *, yes: self.asked.append(question))
        monkeypatch.setattr(deploy, "with_current_sizes", lambda aws, plan: self.later.pop(0) if self.later else plan)
        monkeypatch.setattr(live_runs, "check_live_runs", self._allow)
        monkeypatch.setattr(live_runs, "stop_runs", lambda session, run_ids, tell: self.ended.append(run_ids))
        self.live: tuple[str, ...] = ()

    def _allow(self, session: Any, doing: str, reasons: tuple[str, ...], *, force: bool) -> live_runs.LiveRuns:
        if self.live and not force:
            raise live_runs.StopsRunError(doing, self.live, "", reasons)
        return live_runs.LiveRuns(run_ids=self.live)

    def permit(self, plan: Plan, *, asked: bool = False) -> Plan:
        session: Any = type("Session", (), {"aws": None})()
        return deploy._permit(session, plan, self.told.append, asked=asked, force=False, yes=False, aside=True)


@pytest.mark.parametrize("is_complete", [False, True])
def test_bootstrap_requires_consent(monkeypatch: pytest.MonkeyPatch, is_complete: bool) -> None:
    """Source: aws-cdk #26588: an account with another bootstrap was bootstrapped again, without a question."""
    state = bootstrap.Bootstrap(
        names=bootstrap.Names(qualifier="corp01"), account="1", region="r", bucket_exists=is_complete, status="",
        version=33 if is_complete else None,
    )  # fmt: skip
    asked: list[str] = []

    def refuse(question: str, *, yes: bool) -> None:
        asked.append(question)
        raise DeepcdkError("Aborted.")

    def is_ready(*_: Any, **__: Any) -> None:
        raise InterruptedError

    monkeypatch.setattr(deploy, "Session", mock.MagicMock())
    monkeypatch.setattr("stacks.cross_key_checks.cautions", lambda _: ())
    monkeypatch.setattr(deploy, "describe_stack", lambda *_: {"StackStatus": "CREATE_COMPLETE"})
    for name in ("_check_account", "describe_bounds", "describe_rest"):
        monkeypatch.setattr(deploy, name, lambda *_, **__: "")
    monkeypatch.setattr(bootstrap, "examine", lambda *_: state)
    monkeypatch.setattr(deploy, "_provide_key_pair", is_ready)
    monkeypatch.setattr(deploy, "confirm", refuse)
    with pytest.raises(InterruptedError if is_complete else DeepcdkError):
        deploy.up.body()
    assert [question.partition(" for")[0] for question in asked] == (
        [] if is_complete else ["bootstrap account 1 in r with qualifier corp01"]
    )


@pytest.mark.parametrize(
    ("is_new", "before", "waits"), [(True, 3, True), (False, 2, True), (False, 3, False)],
    ids=["created", "grown", "as large as before"],
)  # fmt: skip
def test_cluster_with_new_workers_is_shown_once_the_master_can_log_in(
    monkeypatch: pytest.MonkeyPatch, *, is_new: bool, before: int, waits: bool
) -> None:
    found, later, shown = [make_inventory(3)], make_inventory(4), list[object]()
    if not is_new:
        found.insert(0, make_inventory(before))
    monkeypatch.setattr(deploy, "Session", mock.MagicMock())
    monkeypatch.setattr("stacks.cross_key_checks.cautions", lambda _: ())
    monkeypatch.setattr(deploy, "describe_stack", lambda *_: {"StackStatus": "CREATE_COMPLETE"})
    for name in ("_check_account", "describe_bounds", "describe_rest", "_provide_key_pair"):
        monkeypatch.setattr(deploy, name, lambda *_, **__: "")
    monkeypatch.setattr(bootstrap, "examine", mock.MagicMock())
    plan = dataclasses.replace(plan_that("2 more nodes start"), is_new=is_new)
    monkeypatch.setattr(change_set, "planned", lambda *_, **__: contextlib.nullcontext(plan))
    monkeypatch.setattr(change_set, "execute", lambda *_, **__: None)
    monkeypatch.setattr(deploy, "_permit", lambda *_, **__: dataclasses.replace(plan, effects=()))
    monkeypatch.setattr(deploy, "_check_same_zones", lambda _: None)
    monkeypatch.setattr(inventory, "find", lambda *_: found.pop(0))
    monkeypatch.setattr(deploy, "await_logins", lambda session, found, report: later)
    monkeypatch.setattr(status, "print_status", lambda found, *_, **__: shown.append(found))
    deploy.up.body(yes=True)
    assert shown == [later if waits else make_inventory(3)]


def test_change_is_confirmed_once_if_groups_do_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, change = plan_that("2 more nodes start"), Change(monkeypatch)
    assert change.permit(plan) is plan
    assert len(change.asked) == 1


def test_group_that_grows_during_the_question_is_confirmed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown = plan_that("4 of 8 nodes ARE TERMINATED", "4 of 8 nodes are terminated")
    change = Change(monkeypatch, grown, dataclasses.replace(grown))
    assert change.permit(plan_that("2 more nodes start")) == grown
    assert len(change.asked) == 2
    assert "the size of a group has changed in the meantime; the effects are now:" in change.told
    assert any("4 of 8 nodes ARE TERMINATED" in line for line in change.told)


def test_group_that_grew_while_run_was_stopped_is_confirmed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_that("2 of 4 nodes ARE TERMINATED", "2 of 4 nodes are terminated")
    change = Change(monkeypatch, plan, plan_that("4 of 8 nodes ARE TERMINATED", "4 of 8 nodes are terminated"))
    assert change.permit(plan).stop_reasons == ("4 of 8 nodes are terminated",)
    assert (len(change.asked), len(change.ended)) == (2, 2)


def test_run_that_starts_on_new_nodes_during_the_question_is_not_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = Change(monkeypatch, plan_that("4 of 8 nodes ARE TERMINATED", "4 of 8 nodes are terminated"))
    change.live = ("one",)
    with pytest.raises(live_runs.StopsRunError, match="run one is live"):
        change.permit(plan_that("2 more nodes start"))
    assert change.ended == []


def test_first_deployment_asks_once_and_asks_again_if_it_became_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, change = dataclasses.replace(plan_that("2 more nodes start"), is_new=True), Change(monkeypatch)
    change.permit(plan, asked=True)
    assert change.asked == []
    change.permit(dataclasses.replace(plan, is_new=False), asked=True)
    assert [question.partition(":")[0] for question in change.asked] == ["change stack deepcdk"]


@pytest.mark.parametrize("differs", [False, True])
def test_key_pair_imported_meanwhile_by_another_laptop_is_checked(
    monkeypatch: pytest.MonkeyPatch, *, differs: bool
) -> None:
    told: list[str] = []
    found = [None, {"KeyName": "deepcdk", "PublicKey": "ssh-ed25519 AAAA"}]
    mine = UserKey(place="mine", algorithm="ssh-ed25519", blob=b"other" if differs else bytes(3))
    monkeypatch.setattr(key_pair, "describe", lambda *_: found.pop(0))
    monkeypatch.setattr(key_pair, "import_public_key", lambda *_: False)
    monkeypatch.setattr(key_pair, "own_keys", lambda *_: (mine,))
    config = type("Config", (), {"key_name": "deepcdk"})()
    session: Any = type("Session", (), {"aws": None, "config": config, "key": ""})()
    with pytest.raises(key_pair.OtherKeyError) if differs else contextlib.nullcontext():
        deploy._provide_key_pair(session, told.append, new=True)
    assert found == []


@pytest.mark.parametrize("plan", [False, True])
def test_nothing_is_planned_or_imported_for_a_stack_that_is_being_destroyed(
    monkeypatch: pytest.MonkeyPatch, plan: bool
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr("cluster.aws.client.Aws._client", lambda *_, **__: pytest.fail("AWS is asked for more"))
    monkeypatch.setattr(deploy, "describe_stack", lambda aws, name: {"StackName": name, "StackStatus": DELETING})
    monkeypatch.setattr(cdk, "call", lambda *_: pytest.fail("the CDK is run"))
    with pytest.raises(BeingDestroyedError, match="wait until it is deleted"):
        deploy.up.body(set_=("ssh_cidr=198.51.100.7/32",), plan=plan)


def test_cluster_created_meanwhile_by_another_laptop_keeps_its_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second first deployment with other zones would replace the subnets of the first."""
    subnet = {"Type": "AWS::EC2::Subnet", "Properties": {"AvailabilityZone": "us-east-1c"}}
    monkeypatch.setattr(deploy, "read_template", lambda *_: {"Resources": {"A": subnet}})
    config = type("Config", (), {"stack_name": "deepcdk", "zones": ("us-east-1c",)})()
    session: Any = type("Session", (), {"aws": None, "config": config})()
    deploy._check_same_zones(session)
    config.zones = ("us-east-1a",)
    with pytest.raises(OvertakenError, match="created in us-east-1c"):
        deploy._check_same_zones(session)

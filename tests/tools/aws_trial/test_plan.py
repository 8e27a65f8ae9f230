"""Facts about the plan: what a trial may destroy, and that its settings make a valid cluster."""

from __future__ import annotations

import pytest

from fabfile import ns
from stacks.config import ClusterConfig
from stacks.validation import validate
from tools.aws_trial import plan
from tools.demo import ROOT


def test_names_differ_and_are_a_trials() -> None:
    names = {plan.new_name() for _ in range(20)}
    assert len(names) > 1
    assert all(plan.is_trial_name(name) for name in names)


@pytest.mark.parametrize("name", ["deepcdk", "deepcdk-trial-", "deepcdk-trial-ABCD", "my-deepcdk-trial-ab12", ""])
def test_a_cluster_of_another_name_is_never_a_trials(name: str) -> None:
    assert not plan.is_trial_name(name)


@pytest.mark.parametrize("ssh_cidr", ["198.51.100.7/32", ""])
def test_the_settings_deploy_a_small_cluster_with_a_tag_and_a_bound_of_its_own(ssh_cidr: str) -> None:
    given = plan.settings("deepcdk-trial-ab12", ssh_cidr)
    config = ClusterConfig.from_file(ROOT / "cdk.json", given)
    validate(config, "eu-west-1")
    assert config.tag_values == {plan.TAG: "deepcdk-trial-ab12"}
    assert (config.stack_name, config.workers, config.max_workers) == ("deepcdk-trial-ab12", 2, 3)
    assert (config.max_hours, config.retain_data, config.is_reachable) == (3.0, False, True)
    assert config.ssh_cidr == ((ssh_cidr,) if ssh_cidr else ())


def test_the_steps_are_tasks_of_unique_names_and_the_first_that_spends_is_the_creation() -> None:
    steps = (*plan.STEPS, plan.DESTRUCTION)
    assert len({step.name for step in steps}) == len(steps)
    assert {step.words[0] for step in steps} <= set(ns.task_names)
    assert [step.name for step in steps[:2]] == [plan.FIRST, plan.CREATION]
    assert not [step for step in steps if step.name == plan.CREATION and step.may_fail]


def test_settings_stand_before_the_words_of_a_command() -> None:
    step = plan.Step(name="run", words=("run", "--", "nproc"))
    assert plan.command(step, {"a": "b"}) == ["fab", "run", "--set", "a=b", "--", "nproc"]

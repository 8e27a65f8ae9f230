"""The question and the answer of `fab plan`."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cluster.errors import UsageError
from cluster.planner.calibration import Calibration
from cluster.planner.candidates import HourlyPrices
from cluster.planner.plan_request import Question, read
from cluster.runs.recipe_or_program import RecipeFlags
from stacks.config import ClusterConfig
from tests.cluster.planner.test_calibration import rate

FREE = dict.fromkeys(("p4d.24xlarge", "p5.48xlarge", "p3.16xlarge", "c5.2xlarge", "x"), HourlyPrices(node=1.0))


FREE_OF_BOTH = dict.fromkeys(("c5.2xlarge", "c5.4xlarge"), HourlyPrices(node=1.0))


def asked(*words: str, recipe: str = "imagenet-fast", **flags: Any) -> Question:
    """Return a question with these flags, and words after `--`."""
    given: dict[str, Any] = {
        "nodes": "1,16",
        "instances": "p3.16xlarge",
        "deadline": "",
        "budget": "",
        "to_target": False,
        "config": ClusterConfig(),
        **flags,
    }
    return read(RecipeFlags(recipe=recipe), words, **given)


def test_each_number_of_nodes_has_the_variant_for_its_ranks() -> None:
    answer = asked().answer(FREE)
    assert [each.nodes for each in answer.candidates] == [1, 16]
    epochs = [asked().workload(ranks).epochs for ranks in (8, 128)]
    assert epochs == [28, 50]


def test_with_target_run_ends_after_the_epoch_that_reached_it() -> None:
    assert asked(to_target=True).workload(128).epochs == 38
    with pytest.raises(UsageError, match="recipe imagenet-90 does not state in which epoch"):
        asked(recipe="imagenet-90", to_target=True).answer(FREE)


def test_settings_after_double_dash_change_the_estimate() -> None:
    quick = asked("--epochs", "1", "--network", "lenet", recipe="digits", instances="c5.2xlarge").answer(FREE)
    slow = asked("--epochs", "100", "--network", "lenet", recipe="digits", instances="c5.2xlarge").answer(FREE)
    assert slow.candidates[0].parts.compute == pytest.approx(100 * quick.candidates[0].parts.compute)


def test_rate_of_earlier_run_counts_only_for_its_type_and_is_named() -> None:
    past = Calibration(rates=(rate(value=50.0, low=40.0, high=60.0),))
    before = asked(recipe="digits", instances="c5.2xlarge,c5.4xlarge").answer(FREE_OF_BOTH)
    question = dataclasses.replace(asked(recipe="digits", instances="c5.2xlarge,c5.4xlarge"), calibration=past)
    after = question.answer(FREE_OF_BOTH)
    assert after.candidates[0].parts.compute > before.candidates[0].parts.compute
    changed = {kind for kind, found in after.assumptions.items() if found != before.assumptions[kind]}
    assert changed == {"c5.2xlarge"}
    chosen = after.choice.candidate
    assert chosen and after.document()["chosen"] == {"instance_type": chosen.instance_type, "nodes": chosen.nodes}
    told = after.document()["assumptions"]["c5.2xlarge"]["images_s"]
    assert (told["evidence"], told["source"]) == ("calibrated", "run new of 2026-11-18, on 2 x c5.2xlarge")


def test_no_directory_of_data_is_needed_for_an_estimate() -> None:
    assert asked(recipe="fashion-mnist", instances="c5.2xlarge").answer(FREE).candidates


def test_types_come_from_recipe_or_else_from_cluster() -> None:
    assert [kind.instance_type for kind in asked(instances="").types][:2] == ["p4d.24xlarge", "p5.48xlarge"]
    config = dataclasses.replace(
        ClusterConfig(), worker_instance_type="c5.18xlarge", worker_alternatives=("c5.9xlarge",)
    )
    found = asked(recipe="digits", instances="", config=config).types
    assert [kind.instance_type for kind in found] == ["c5.18xlarge", "c5.9xlarge"]


def test_link_depends_on_placement_group_and_efa_of_cluster() -> None:
    def link(**keys: Any) -> float:
        answer = asked(instances="p4d.24xlarge", config=dataclasses.replace(ClusterConfig(), **keys)).answer(FREE)
        return answer.assumptions["p4d.24xlarge"].between_bytes_s.value

    assert link() < link(placement_group=True) < link(efa=True)
    assert any("--set efa=true" in caution for caution in asked(instances="p4d.24xlarge").answer(FREE).cautions)


def test_limits_affect_the_choice() -> None:
    cheap = asked(budget="1000000").answer(FREE)
    assert cheap.choice.reason == "it is the fastest within the budget"
    assert asked(deadline="0.001").answer(FREE).choice.candidate is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"nodes": "0"}, "--nodes = '0': must be a whole number from 1"),
        ({"nodes": ","}, "--nodes = ',': must be numbers of nodes"),
        ({"instances": "p5.48xlrge"}, "did you mean p5.48xlarge"),
        ({"deadline": "soon"}, "--deadline = 'soon': must be a number"),
        ({"deadline": "0"}, "--deadline = '0': must be a number of hours above 0"),
        ({"budget": "nan"}, "--budget = 'nan': must be a number of US dollars above 0"),
        ({"recipe": "imagenet"}, "did you mean imagenet-90"),
    ],
)
def test_invalid_plan_is_rejected_by_name(flags: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        asked(**flags)

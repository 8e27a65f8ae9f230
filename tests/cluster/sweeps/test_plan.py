"""The plan of a sweep: its runs, their order and their seeds."""

from __future__ import annotations

from typing import Any

import pytest

from agent.spec.sweep_trial import Trial
from cluster.errors import DeepcdkError, UsageError
from cluster.sweeps.plan import Plan, check_placeholders, expand, read_plan, values_of


def plan(*grid: str, **changes: Any) -> Plan:
    return read_plan(grid, **{"samples": 0, "repeats": 1, "seed": 1, "nodes": "1", **changes})


def test_each_combination_runs_once_before_any_is_repeated_with_the_next_seed() -> None:
    trials = plan("a=1,2", "b=x,y", repeats=2, seed=7).trials("s")
    assert [(t.text, t.repeat, t.seed, t.number) for t in trials[:5]] == [
        ("a=1, b=x", 1, 7, 1), ("a=1, b=y", 1, 7, 2), ("a=2, b=x", 1, 7, 3), ("a=2, b=y", 1, 7, 4),
        ("a=1, b=x", 2, 8, 5),
    ]  # fmt: skip
    assert len(trials) == 8


def test_plan_survives_json_and_gives_the_same_runs() -> None:
    found = plan("lr=loguniform(1e-4,1)", "x=a,b", samples=20, repeats=2)
    assert Plan.from_json(found.to_json()) == found
    assert Plan.from_json(found.to_json()).trials("s") == found.trials("s")
    for damaged in ("", "[]", "{}", '{"parameters": 3}', '{"parameters": [{"name": 1}]}'):
        with pytest.raises(DeepcdkError, match="no valid plan"):
            Plan.from_json(damaged)


def test_samples_of_lists_are_different_combinations() -> None:
    drawn = plan("a=1..10", "b=1..10", samples=99).combinations()
    assert len(set(drawn)) == 99 and drawn != sorted(drawn)
    assert plan("a=1..10", "b=1..10", samples=99, seed=2).combinations() != drawn
    with pytest.raises(UsageError, match="only 3 different"):
        plan("a=randint(1,3)", samples=4).combinations()


def test_several_numbers_of_nodes_are_a_parameter() -> None:
    found = plan("a=1", nodes="1,4")
    assert [found.nodes_of(trial) for trial in found.trials()] == [1, 4]
    assert found.max_nodes == 4
    assert plan("nodes=1,2").max_nodes == 2
    assert plan("a=1,2", nodes="3").max_nodes == 3


@pytest.mark.parametrize(
    ("grid", "changes", "rule"),
    [
        (("a=1", "a=2"), {}, "is given twice"),
        (("nodes=1,2",), {"nodes": "1,2"}, "is given twice"),
        (("seed=1,2",), {"repeats": 2}, "leave out --grid seed"),
        (("lr=uniform(0,1)",), {}, "needs --samples"),
        (("a=1,2",), {"samples": 3}, "more than the 2 combinations"),
        (("a=1..1000", "b=1..1000"), {}, "(?s)1,000,000 runs, but at most 10,000 .*--samples"),
        (("nodes=x",), {}, "--grid nodes = 'x': must be a number of nodes"),
        ((), {}, "must have a parameter"),
        (("a=1",), {"nodes": "0"}, "number of nodes"),
        (("a=1",), {"repeats": 2, "seed": (1 << 31) - 1}, "at most 2147483646"),
        (("a=1",), {"repeats": 999_999_999_999}, "the sweep has 999,999,999,999 runs, but at most 10,000"),
        (("a=1",), {"repeats": 999_999_999_999, "seed": (1 << 31) - 1}, "the sweep has 999,999,999,999 runs"),
    ],
)
def test_invalid_plans_are_rejected_with_the_rule(grid: tuple[str, ...], changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(DeepcdkError, match=rule):
        plan(*grid, **changes)


def test_ten_thousand_runs_are_allowed() -> None:
    assert plan("a=1..100", "b=1..100").count == 10_000


def test_placeholders_are_expanded_once() -> None:
    trial = Trial(sweep="s", parameters=(("lr", "{seed}"), ("name", "<b>")), repeat=1, seed=7)
    words = ("--lr={lr}", "{name}-{seed}", "{{lr}}", "{rank}", "{{rank}}", "${lr}", '{"a": 1}')
    expected = ("--lr={seed}", "<b>-7", "{lr}", "{rank}", "{{rank}}", "${lr}", '{"a": 1}')
    assert expand(words, values_of(trial, "/run")) == expected


@pytest.mark.parametrize(
    ("words", "names", "rule"),
    [
        (["--lr={lr}"], [], r"\{lr\}.*has no values: give --grid lr="),
        (["--lr", "0.1"], ["lr"], r"does not use \{lr\}"),
        (["{rank}"], ["rank"], "is reserved"),
    ],
)
def test_placeholders_and_parameters_must_match(words: list[str], names: list[str], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        check_placeholders(words, names)
    check_placeholders(["{lr}", "{rank}", "{seed}", "{{step}}", "${HOME}"], ["lr", "nodes"])

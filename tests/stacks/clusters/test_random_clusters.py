"""Random clusters: valid ones synthesize, keep the invariants and break no AWS rule; others fail with the key's name.

DEEPCDK_EXAMPLES=1000 tries a thousand of each; a valid one costs about half a second.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from stacks.config import ClusterConfig, ConfigError
from stacks.cross_key_checks import check
from tests.stacks.clusters import synthesis
from tests.stacks.clusters.eight import SSH_CIDR
from tests.stacks.clusters.invariants import broken
from tests.stacks.clusters.strategies import Values, clusters
from tests.stacks.clusters.wrong_values import WRONG

EXAMPLES = int(os.environ.get("DEEPCDK_EXAMPLES", "5"))
KEYS = {field.name: field.default for field in dataclasses.fields(ClusterConfig)}
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
# Shrinking a failing example takes hundreds of syntheses.
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)


def build(values: Values) -> ClusterConfig:
    return ClusterConfig.from_context({"cluster": values})


@given(values=clusters())
@settings(max_examples=EXAMPLES, suppress_health_check=SLOW, phases=UNSHRUNK)
def test_valid_cluster_is_synthesised_and_satisfies_invariants_and_rules(values: Values) -> None:
    config = build(values)
    assert list(check(config)) == []
    inspected = synthesis.inspect(config)
    assert broken(inspected.template, config) == []
    assert inspected.findings[synthesis.PREFLIGHT] == []


def test_random_clusters_vary_every_key() -> None:
    seen: dict[str, set[Any]] = {key: set() for key in KEYS}
    # The first values depend on the loaded modules, so one seed may miss a rare value.
    for number in range(10):

        @seed(number)
        @given(values=clusters())
        @settings(max_examples=100, database=None, suppress_health_check=SLOW)
        def look(values: Values) -> None:
            assert list(check(build(values))) == []
            assert values.keys() == KEYS.keys()
            for key, value in values.items():
                seen[key].add(value)

        look()
        same = [key for key, values in seen.items() if len(values) < 2]
        if not same:
            break
    assert same == []


def test_every_key_has_invalid_values() -> None:
    assert WRONG.keys() == KEYS.keys()


@pytest.mark.parametrize("key", sorted(WRONG))
def test_invalid_value_is_reported_with_its_key(key: str) -> None:
    @given(wrong=WRONG[key])
    @settings(max_examples=25)
    def refuse(wrong: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            build({"ssh_cidr": SSH_CIDR, key: wrong})
        assert caught.value.key == key
        assert f"cluster.{key}" in str(caught.value)

    refuse()


@given(values=clusters(), data=st.data())
@settings(max_examples=10 * EXAMPLES, suppress_health_check=SLOW)
def test_invalid_value_among_valid_values_is_reported(values: Values, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(WRONG.keys() - {"ssh_cidr", "vpc_cidr"})))
    wrong = data.draw(WRONG[key])
    with pytest.raises(ConfigError) as caught:
        build({**values, key: wrong})
    assert caught.value.key == key


@given(one=clusters(), other=clusters(), keys=st.sets(st.sampled_from(sorted(KEYS)), min_size=1, max_size=6))
@settings(max_examples=2 * EXAMPLES, suppress_health_check=SLOW, phases=UNSHRUNK)
def test_mixture_of_two_is_synthesised_or_rejected_with_keys_and_fixes(
    one: Values, other: Values, keys: set[str]
) -> None:
    mixed = {**one, **{key: other[key] for key in keys}}
    try:
        config = build(mixed)
    except ConfigError as error:
        assert error.key in KEYS
        return
    problems = list(check(config))
    assert all(problem.key in KEYS and problem.rule and problem.remedy for problem in problems)
    if not problems:
        assert broken(synthesis.synthesise(config), config) == []

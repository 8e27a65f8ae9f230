"""Rules that involve several values, or the table of instance types. They are checked at synth, before any cost.

ClusterConfig checks each value by itself. These rules collect and report all problems together, and all cautions:
settings that are permitted but may surprise the cluster's owner. They do not access AWS.
"""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.cross_key_checks import compute, images, limits, network, purchasing, runtime, storage
from stacks.cross_key_checks import region as region_rules
from stacks.cross_key_checks.problem import InvalidClusterError, Problem

__all__ = ["InvalidClusterError", "Problem", "cautions", "check", "validate"]


def validate(config: ClusterConfig, region: str = "") -> None:
    """Raise InvalidClusterError with all problems of a configuration, if there are any.

    `region` is the region of the deployment, or "" if it is unknown.
    """
    problems = list(check(config, region))
    if problems:
        raise InvalidClusterError(problems)


def check(config: ClusterConfig, region: str = "") -> Iterator[Problem]:
    """Yield all problems of a configuration, including problems with the region if it is given."""
    for area in (compute, purchasing, images, runtime, network, storage, limits):
        yield from area.check(config)
    if region:
        yield from region_rules.check(config, region)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield the cautions: permitted settings that the owner should know about before a deployment."""
    yield from compute.cautions(config)
    yield from images.cautions(config)
    yield from runtime.cautions(config)
    yield from network.cautions(config)

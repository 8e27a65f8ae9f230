"""Rules that bind several values, or a value to the table of instance types: checked at synth, before any spend.

A value that is wrong by itself fails where ClusterConfig is built. Here all problems are collected and reported
at once, and all cautions: what may be deployed, but would surprise its owner. AWS is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.validation import compute, images, limits, network, purchasing, runtime, storage
from stacks.validation import region as region_rules
from stacks.validation.problem import InvalidClusterError, Problem

__all__ = ["InvalidClusterError", "Problem", "cautions", "check", "validate"]


def validate(config: ClusterConfig, region: str = "") -> None:
    """Raise InvalidClusterError with all problems of a configuration, if it has any.

    `region` is that of the deployment, "" where it is not known.
    """
    problems = list(check(config, region))
    if problems:
        raise InvalidClusterError(problems)


def check(config: ClusterConfig, region: str = "") -> Iterator[Problem]:
    """Yield every rule that the configuration breaks; those of a region where one is given."""
    for area in (compute, purchasing, images, runtime, network, storage, limits):
        yield from area.check(config)
    if region:
        yield from region_rules.check(config, region)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield the cautions: what is allowed, and what the owner should know before a deployment."""
    yield from compute.cautions(config)
    yield from images.cautions(config)
    yield from runtime.cautions(config)
    yield from network.cautions(config)

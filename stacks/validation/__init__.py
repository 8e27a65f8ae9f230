"""Rules that bind several values, or a value to the table of instance types: checked at synth, before any spend.

A value that is wrong by itself fails where ClusterConfig is built. Here every problem is listed, so that one run tells
them all, and every caution: what may be deployed, and would surprise its owner. No AWS is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.validation import compute, guard, images, network, observability, purchasing, runtime, storage
from stacks.validation.problem import InvalidClusterError, Problem

__all__ = ["InvalidClusterError", "Problem", "cautions", "check", "validate"]


def validate(config: ClusterConfig) -> None:
    """Raise InvalidClusterError with all problems of a configuration, if it has any."""
    problems = list(check(config))
    if problems:
        raise InvalidClusterError(problems)


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule that the configuration breaks."""
    for area in (compute, purchasing, images, runtime, network, storage, guard, observability):
        yield from area.check(config)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield what the configuration may have, and its owner should know before a deployment."""
    yield from runtime.cautions(config)
    yield from network.cautions(config)

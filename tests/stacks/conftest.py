"""Synthesised stacks, each made once: starting jsii and composing the stack cost seconds."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from stacks.config import ClusterConfig
from tests.stacks.clusters import synthesis
from tests.stacks.clusters.eight import CLUSTERS, SSH_CIDR
from tests.stacks.clusters.synthesis import PROJECT

if TYPE_CHECKING:
    from tests.stacks.clusters.template import Template

__all__ = ["PROJECT", "SSH_CIDR", "Synthesise"]

Synthesise = Callable[..., "Template"]


@pytest.fixture(scope="session")
def synthesise() -> Synthesise:
    """Return a function from configuration values to the stack's template, which remembers what it made."""
    made: dict[str, Template] = {}

    def make(**values: Any) -> Template:
        key = json.dumps(values, sort_keys=True)
        if key not in made:
            made[key] = synthesis.synthesise(ClusterConfig(**{"ssh_cidr": SSH_CIDR, **values}))
        return made[key]

    return make


@pytest.fixture(scope="session")
def template(synthesise: Synthesise) -> Template:
    """Return the template of the default configuration."""
    return synthesise()


@pytest.fixture(scope="session")
def inspected() -> Callable[[str], synthesis.Inspected]:
    """Return a function from the name of a cluster to its template and cdk-nag's findings, made once for all tests."""
    return functools.cache(lambda name: synthesis.inspect(CLUSTERS[name].config()))

"""Synthesised stacks, each made once: starting jsii and composing the stack cost seconds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stacks.config import ClusterConfig

if TYPE_CHECKING:
    from tests.stacks.template import Template

PROJECT = Path(__file__).parents[2]
SSH_CIDR = ("198.18.0.7/32",)

Synthesise = Callable[..., "Template"]


@pytest.fixture(scope="session")
def synthesise() -> Synthesise:
    """Return a function from configuration values to the stack's template, which remembers what it made."""
    os.environ["CDK_VALIDATION"] = "false"  # 2 s at the first synth; test_template.py runs with all rules on
    made: dict[str, Template] = {}
    flags = json.loads((PROJECT / "cdk.json").read_text(encoding="utf-8"))["context"]

    def make(**values: Any) -> Template:
        from aws_cdk import App, assertions

        from stacks.cluster import ClusterStack
        from tests.stacks.template import Template

        key = json.dumps(values, sort_keys=True)
        if key not in made:
            app = App(analytics_reporting=False, context=flags)
            stack = ClusterStack(app, ClusterConfig(**{"ssh_cidr": SSH_CIDR, **values}))
            made[key] = Template(dict(assertions.Template.from_stack(stack).to_json()))
        return made[key]

    return make


@pytest.fixture(scope="session")
def template(synthesise: Synthesise) -> Template:
    """Return the template of the default configuration."""
    return synthesise()

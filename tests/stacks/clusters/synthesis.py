"""Synthesize a configuration into a template in this process, without external checks or under inspectors."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from stacks.config import ClusterConfig
from tests.stacks.clusters.template import Template

PROJECT: Final = Path(__file__).parents[3]
NAG: Final = "AwsSolutions"
PREFLIGHT: Final = "cdk-preflight"


@functools.cache
def flags() -> dict[str, Any]:
    """Return the CDK's feature flags, as in cdk.json."""
    context: dict[str, Any] = json.loads((PROJECT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return context


def synthesise(config: ClusterConfig) -> Template:
    """Return the template of a configuration."""
    os.environ["CDK_VALIDATION"] = "false"  # 2 s at the first synth; test_template.py runs with all rules on
    from aws_cdk import App, assertions

    from stacks.cluster import ClusterStack

    with tempfile.TemporaryDirectory() as outdir:
        stack = ClusterStack(App(analytics_reporting=False, context=flags(), outdir=outdir), config)
        return Template(dict(assertions.Template.from_stack(stack).to_json()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspected:
    """A template, and the findings of each inspector that are not acknowledged."""

    template: Template
    findings: dict[str, list[str]]
    """By the name of the inspector: `NAG` and `PREFLIGHT`."""


def inspect(config: ClusterConfig) -> Inspected:
    """Synthesize a configuration once, with cdk-nag and with the rules for templates that AWS would reject."""
    os.environ["CDK_VALIDATION"] = "false"
    from aws_cdk import App, Validations
    from cdk_nag import AwsSolutionsChecks
    from cdk_preflight import Preflight

    from stacks.cluster import ClusterStack

    with tempfile.TemporaryDirectory() as outdir:
        app = App(analytics_reporting=False, context=flags(), outdir=outdir)
        Preflight.apply(app)
        ClusterStack(app, config)
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        try:
            app.synth()
        except RuntimeError as error:
            if "ValidationFailed" not in str(error):
                raise
        report = json.loads(Path(outdir, "validation-report.json").read_text(encoding="utf-8"))
        document = json.loads(Path(outdir, f"{config.stack_name}.template.json").read_text(encoding="utf-8"))
    findings: dict[str, list[str]] = {NAG: [], PREFLIGHT: []}
    for plugin in report["pluginReports"]:
        found = [f"{violation['ruleName']}: {violation['description']}" for violation in plugin["violations"]]
        findings.setdefault(plugin["pluginName"], []).extend(found)
    return Inspected(template=Template(document), findings=findings)

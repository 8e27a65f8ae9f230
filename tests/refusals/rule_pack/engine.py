"""The rule pack over many templates at once: starting jsii and compiling the rules costs seconds, a template little."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.refusals.case import Template


def findings(templates: Sequence[Template]) -> list[list[str]]:
    """Return for each template which rules of cdk-preflight it breaks, at a synthesis as `app.py` does it."""
    os.environ["CDK_VALIDATION"] = "false"  # the engine's own rules, which are not asked for here
    from aws_cdk import App, Stack
    from aws_cdk.cloudformation_include import CfnInclude
    from cdk_preflight import Preflight

    with tempfile.TemporaryDirectory() as outdir:
        app = App(analytics_reporting=False, outdir=outdir)
        Preflight.apply(app)
        for number, template in enumerate(templates):
            source = Path(outdir, f"source-{number}.json")
            source.write_text(json.dumps(template), encoding="utf-8")
            CfnInclude(Stack(app, f"case-{number}"), "Template", template_file=str(source))
        try:
            app.synth()
        except RuntimeError as error:
            if "ValidationFailed" not in str(error):
                raise
        report = json.loads(Path(outdir, "validation-report.json").read_text(encoding="utf-8"))
    found: list[list[str]] = [[] for _ in templates]
    for plugin in report["pluginReports"]:
        for violation in plugin["violations"]:
            for construct in violation["violatingConstructs"]:
                place = construct["cloudFormationResource"]["templatePath"]
                found[int(place.removeprefix("case-").removesuffix(".template.json"))].append(violation["ruleName"])
    return found

"""The rule pack over many templates at once: starting jsii and compiling the rules costs seconds, a template little.

In a process of its own, for jsii keeps the environment in which a process first used it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.refusals.case import Template

ROOT: Final = Path(__file__).resolve().parents[3]


def findings(templates: Sequence[Template]) -> list[list[str]]:
    """Return for each template which rules of cdk-preflight it breaks, at a synthesis as `app.py` does it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.refusals.rule_pack.engine"],
        input=json.dumps(templates),
        env={**os.environ, "CDK_VALIDATION": "false"},  # the engine's own rules, which are not asked for here
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def synthesise(templates: Sequence[Template]) -> list[list[str]]:
    """Return the same, in this process."""
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


if __name__ == "__main__":
    print(json.dumps(synthesise(json.load(sys.stdin))))

"""Describe the cluster of cdk.json to the AWS CDK."""

from __future__ import annotations

import os
import sys

from aws_cdk import App
from cdk_preflight import Preflight

from stacks.cluster import ClusterStack
from stacks.config import ClusterConfig, ConfigError
from stacks.validation import validate


def main() -> None:
    """Read the context, compose the stack, write the templates."""
    app = App(analytics_reporting=False)
    Preflight.apply(app)
    try:
        config = ClusterConfig.from_context(app.node.get_all_context())
        validate(config, os.environ.get("CDK_DEFAULT_REGION", ""))  # the CDK CLI sets it
    except ConfigError as error:
        sys.exit(f"deepcdk: {error}")
    ClusterStack(app, config)
    app.synth()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

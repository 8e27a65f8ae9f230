"""The CDK app of a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from aws_cdk import App
from cdk_preflight import Preflight

from stacks.cluster import ClusterStack
from stacks.config import ClusterConfig, ConfigError, feature_flags
from stacks.validation import validate

FLAGS: Final = Path(__file__).parents[1] / "cdk.json"
"""File with the CDK's feature flags, so that a project's own cdk.json need not repeat them."""


def cluster_app(config: ClusterConfig | None = None) -> App:
    """Return an app with a cluster. `config`: None takes the configuration from the CDK's context (cdk.json and -c).

    Exits with a message if the configuration is invalid.
    """
    flags = feature_flags(FLAGS.read_text(encoding="utf-8"))
    app = App(analytics_reporting=False, context=flags)  # cdk.json's own flags take precedence
    Preflight.apply(app)
    try:
        config = config or ClusterConfig.from_context(app.node.get_all_context())
        validate(config, os.environ.get("CDK_DEFAULT_REGION", ""))  # the CDK CLI sets it
    except ConfigError as error:
        sys.exit(f"deepcdk: {error}")
    ClusterStack(app, config)
    return app

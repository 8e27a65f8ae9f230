"""Describe the cluster of cdk.json to the AWS CDK."""

from __future__ import annotations

import sys

from stacks.app import cluster_app


def main() -> None:
    """Read the context, compose the stack, write the templates."""
    cluster_app().synth()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

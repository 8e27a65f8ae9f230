"""Describe the cluster of cdk.json to the AWS CDK."""

from __future__ import annotations

import sys

import deepcdk


def main() -> None:
    """Read the context, compose the stack, write the templates. Exits with a message if the context is invalid."""
    deepcdk.app().synth()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

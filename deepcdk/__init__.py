"""The public API for your own projects: the cluster for app.py, and the tasks for fabfile.py.

Names are imported when they are used, because the CDK takes seconds to import and tasks do not need it.

Import this package before `aws_cdk`. It selects the Node.js that deepcdk installs, unless JSII_NODE names another one.
Otherwise jsii, which connects Python to the CDK, uses the `node` in PATH.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from cluster.cli import COLLECT_AFTER, VERSION, check_platform, packaged_node

if TYPE_CHECKING:
    from aws_cdk import App
    from invoke.collection import Collection

    from cluster.cli.program import WordsExecutor
    from stacks.cluster import ClusterStack
    from stacks.config import ClusterConfig

__all__ = ["ClusterConfig", "ClusterStack", "WordsExecutor", "__version__", "app", "tasks"]

__version__: Final = VERSION

if _node := packaged_node():
    os.environ.setdefault("JSII_NODE", str(_node))  # jsii starts Node.js when aws_cdk is imported


def app(config: ClusterConfig | None = None) -> App:
    """Return a CDK app with a cluster. You can add your own stacks to it. At the end of app.py, call its `synth`.

    `config` describes the cluster. By default, it is read from the context that the CDK CLI reads from cdk.json. Exits
    with a message if the context is invalid, or if the CDK cannot be unpacked. Garbage collection becomes rarer.
    """
    gc.set_threshold(COLLECT_AFTER)
    from jsii.errors import JSIIError

    try:
        from stacks.cluster import cluster_app
    except JSIIError as error:  # for example, jsii cannot write to its cache below HOME
        remedy = "make the cache below your home directory writable, and check that Node.js runs: node --version"
        sys.exit(f"deepcdk: the CDK cannot be loaded: {error}\n  do: {remedy}")

    return cluster_app(config)


def tasks() -> Collection:
    """Return all tasks, for a fabfile.py: `ns = deepcdk.tasks()`. Exits with a message on native Windows."""
    check_platform()

    from cluster.cli import task_modules

    return task_modules.collection()


def __getattr__(name: str) -> Any:
    """Import and return a class of the public API. Raises AttributeError for other names."""
    if name == "ClusterConfig":
        from stacks.config import ClusterConfig

        return ClusterConfig
    if name == "ClusterStack":
        from stacks.cluster import ClusterStack

        return ClusterStack
    if name == "WordsExecutor":
        from cluster.cli.program import WordsExecutor

        return WordsExecutor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

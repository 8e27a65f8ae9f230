"""The public API for your own projects: the cluster for app.py, and the tasks for fabfile.py.

Names are imported when they are used, because the CDK takes seconds to import and tasks do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster.cli import VERSION, check_platform

if TYPE_CHECKING:
    from aws_cdk import App
    from invoke.collection import Collection

    from cluster.cli.program import WordsExecutor
    from stacks.cluster import ClusterStack
    from stacks.config import ClusterConfig

__all__ = ["ClusterConfig", "ClusterStack", "WordsExecutor", "__version__", "app", "tasks"]

__version__: Final = VERSION


def app() -> App:
    """Return a CDK app with the cluster that cdk.json describes. Exits with a message if cdk.json is invalid."""
    from stacks.app import cluster_app

    return cluster_app()


def tasks() -> Collection:
    """Return all tasks, for a fabfile.py: `ns = deepcdk.tasks()`."""
    check_platform()

    from cluster.cli import loader

    return loader.collection()


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

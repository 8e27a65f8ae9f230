"""The task that shows deepcdk on an embedded cloud of this machine."""

from __future__ import annotations

import importlib.util
import platform
from typing import Annotated

from cluster import demo as embedded
from cluster.cli.flags import whole
from cluster.cli.task import task
from cluster.errors import UsageError


@task()
def demo(
    nodes: Annotated[int, "workers to train on, each with one rank", whole(lowest=1, highest=64)] = 2,
    image: Annotated[str, "Debian's image for all nodes: debian-12 or debian-13; default: this machine's files"] = "",
    packages: Annotated[bool, "let the nodes use this machine's package index"] = False,
    keep: Annotated[bool, "keep the embedded cloud, and print how to continue and how to remove it"] = False,
    verbose: Annotated[bool, "print the full output of the commands"] = False,
) -> None:
    """
    Deploy, train, fetch the results and destroy the cluster, on an embedded cloud of this machine instead of AWS.

    It needs Linux with root, and the extra `localcloud` of the wheel. The nodes' environments are created once per
    machine, which takes minutes and needs a C++ compiler. With --image, nodes run on Debian's own root file system,
    which mmdebstrap creates once. If its Python differs from this machine's, nodes create their own environments.

    Example: fab demo --nodes 4
    """
    embedded.check_machine(platform.system(), has_localcloud=importlib.util.find_spec("localcloud") is not None)
    if image not in ("", *embedded.PYTHONS):
        raise UsageError("--image", image, f"must be {' or '.join(embedded.PYTHONS)}")
    embedded.run_demo(nodes, image, packages=packages, keep=keep, verbose=verbose)

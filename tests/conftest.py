"""What the machine can run: a test that needs more is skipped with the reason, or fails where all must run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal

import pytest
from hypothesis import settings

REQUIRE_ALL = "DEEPCDK_REQUIRE_ALL"
"""Set to 1 (as CI does) to make a missing tool a failure instead of a skip."""

ROOT_TOOLS = ("ip", "nft", "sshd", "unshare", "nsenter", "setpriv", "pivot_root", "mount", "ssh-keygen", "curl")
OWN_CLOUDS = ("test_lifecycle.py", "test_reachability.py")
"""Files of tests/e2e that start embedded clouds of their own; the others share one."""


# How long an example takes tells of the machine's load, not of the code: no deadline. And the same examples each time,
# so that a change fails by its own faults; DEEPCDK_EXAMPLES=N asks for N new ones where a test takes a number.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("searching", deadline=None)
settings.load_profile("searching" if "DEEPCDK_EXAMPLES" in os.environ else "repeatable")


def missing_for(markers: set[str]) -> list[str]:
    """List what the tests under these markers need and this machine lacks."""
    missing: list[str] = []
    if markers & {"root", "e2e"}:
        if os.geteuid() != 0:
            missing.append("root")
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        missing += [tool for tool in ROOT_TOOLS if shutil.which(tool, path=path) is None]
    packages = {"tensorflow": ["tensorflow"], "horovod": ["tensorflow", "horovod"], "e2e": ["moto", "aws_cdk"]}
    for marker in sorted(markers & packages.keys()):
        missing += [name for name in packages[marker] if importlib.util.find_spec(name) is None]
    return missing


def pytest_configure() -> None:
    """Let what tests start be interrupted: a shell starts its background jobs with SIGINT ignored, for all below."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def rank(item: pytest.Item) -> int:
    """Order tests: those of the shared cloud first, then what has hosts of its own, then what computes."""
    if item.nodeid.startswith("tests/e2e/"):
        return 1 if item.path.name in OWN_CLOUDS else 0
    return 2 if item.get_closest_marker("root") else 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=rank)
    for item in items:
        missing = missing_for({marker.name for marker in item.iter_markers()})
        if not missing:
            continue
        reason = f"needs {', '.join(dict.fromkeys(missing))}"
        if os.environ.get(REQUIRE_ALL) == "1":
            pytest.exit(f"{item.nodeid} {reason}; {REQUIRE_ALL}=1 says that every test must run. Try `make setup`.", 1)
        item.add_marker(pytest.mark.skip(reason=reason))

"""Skip tests that this machine cannot run, or fail them if all tests must run."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
from hypothesis import settings

REQUIRE_ALL = "LOCALCLOUD_REQUIRE_ALL"
"""Set to 1 to make a missing tool a failure instead of a skip."""

ROOT_TOOLS = (
    "ip", "nft", "sshd", "unshare", "nsenter", "setpriv", "pivot_root", "mount",
    "bindfs", "ssh-keygen", "curl",
)  # fmt: skip
MISSING = pytest.StashKey[str]()

# No deadline, because an example's duration depends on the machine's load. The examples are the same each time.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


def missing_for_root() -> list[str]:
    """Return the requirements of tests marked `root` that this machine lacks."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    tools = [tool for tool in ROOT_TOOLS if shutil.which(tool, path=path) is None]
    return tools if os.geteuid() == 0 else ["root", *tools]


def pytest_configure() -> None:
    """Make child processes interruptible, because a shell starts its background jobs with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests with hosts first, and skip them if they cannot run here."""
    items.sort(key=lambda item: item.get_closest_marker("root") is None)
    missing = missing_for_root()
    for item in items:
        if item.get_closest_marker("root") is None:
            continue
        if missing and os.environ.get(REQUIRE_ALL) == "1":
            item.stash[MISSING] = f"needs {', '.join(missing)}, and {REQUIRE_ALL}=1"
        elif missing:
            item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(missing)}"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that must run but cannot."""
    if why := item.stash.get(MISSING, None):
        pytest.fail(why, pytrace=False)

"""Check the machine: a test with unmet requirements is skipped with a reason, or fails if all must run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.workermanage import NodeManager

REQUIRE_ALL = "DEEPCDK_REQUIRE_ALL"
"""Set to 1 (as CI does) to make a missing tool a failure instead of a skip."""

ROOT_TOOLS = (
    "ip",
    "nft",
    "sshd",
    "unshare",
    "nsenter",
    "setpriv",
    "pivot_root",
    "mount",
    "bindfs",
    "ssh-keygen",
    "curl",
)
CLOUDS_END_S = 60
"""Time in which processes stop their embedded clouds after Ctrl-C; pytest-xdist's default is 10 s."""
MISSING = pytest.StashKey[str]()
"""The reason why a test that must run cannot."""
LONG_FIRST = ("tests/e2e/own_clouds/", "tests/e2e/", "tests/")
"""Folders in the order in which `--dist loadfile` distributes files: the longest first, to end at the same time."""
FULL = ("tests/fuzz/", "tests/payload/bench/test_ranks.py", "tests/payload/training/test_gradients.py")
"""Folders and files that `make test` leaves out, in addition to most of tests/e2e (see its conftest.py)."""


# No deadline: the time for an example depends on the load of the machine. The same examples are used each time, so that
# a change fails only through its own faults. With DEEPCDK_EXAMPLES=N, tests that support it draw N new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("searching", deadline=None)
settings.load_profile("searching" if "DEEPCDK_EXAMPLES" in os.environ else "repeatable")


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Return a directory nested 3,000 levels deep, so that the innermost path is too long to open."""
    root = tmp_path / "deep"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)  # pathlib cannot
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    yield root
    subprocess.run(["rm", "-rf", str(root)], check=True)


def missing_for(markers: set[str]) -> list[str]:
    """List the requirements of these markers that this machine does not meet."""
    missing: list[str] = []
    if markers & {"root", "e2e"}:
        if os.geteuid() != 0:
            missing.append("root")
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        missing += [tool for tool in ROOT_TOOLS if shutil.which(tool, path=path) is None]
    if "browser" in markers and shutil.which("chromium") is None:
        missing.append("chromium")
    packages = {
        "browser": ["playwright"],
        "tensorflow": ["tensorflow"],
        "horovod": ["tensorflow", "horovod"],
        "e2e": ["moto", "aws_cdk"],
    }
    for marker in sorted(markers & packages.keys()):
        missing += [name for name in packages[marker] if importlib.util.find_spec(name) is None]
    return missing


def pytest_configure() -> None:
    """Let child processes of tests be interrupted: a shell starts its background jobs with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    NodeManager.EXIT_TIMEOUT = CLOUDS_END_S


def pytest_xdist_auto_num_workers() -> int:
    """Start three processes on two cores for `-n auto`: tests of runs and launchers mostly wait."""
    return max(1, len(os.sched_getaffinity(0)) * 3 // 2)


def place(item: pytest.Item) -> int:
    """Return the index of a test's folder in LONG_FIRST."""
    return next((number for number, folder in enumerate(LONG_FIRST) if item.nodeid.startswith(folder)), len(LONG_FIRST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=place)
    for item in items:
        if item.nodeid.startswith(FULL):
            item.add_marker(pytest.mark.full)
        missing = missing_for({marker.name for marker in item.iter_markers()})
        if not missing:
            continue
        reason = f"needs {', '.join(dict.fromkeys(missing))}"
        if os.environ.get(REQUIRE_ALL) == "1":
            item.stash[MISSING] = f"{reason}; {REQUIRE_ALL}=1 says that every test must run. Try `make setup`."
            continue
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that must run but cannot."""
    if why := item.stash.get(MISSING, None):
        pytest.fail(why, pytrace=False)

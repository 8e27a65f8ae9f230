"""What the machine can run: a test that needs more is skipped with the reason, or fails where all must run."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import NodeManager

ROOT = Path(__file__).resolve().parent.parent
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
E2E = "tests/e2e/"
OWN_CLOUDS = "tests/e2e/own_clouds/"
"""Files here start embedded clouds of their own; the others of tests/e2e share one."""
CLOUDS_END_S = 60
"""Time that processes get to end their embedded clouds after Ctrl-C; pytest-xdist gives them 10 s."""
MISSING = pytest.StashKey[str]()
"""Why a test that must run cannot."""
GIVE_WAY = 5
"""By how much processes that compute are nicer than that of the shared cloud, whose tests take longest."""
LONG_FIRST = ("root", "horovod", "tensorflow")
"""Markers, in the order in which their tests begin."""


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
    """Allow what tests start to be interrupted: a shell starts its background jobs with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    NodeManager.EXIT_TIMEOUT = CLOUDS_END_S


def shares_cloud(file: str) -> bool:
    """Return whether the tests of a file, named from the root, run on the one embedded cloud that files share."""
    return file.startswith(E2E) and not file.startswith(OWN_CLOUDS)


@functools.cache
def has_hosts(file: str) -> bool:
    """Return whether tests of a file, named from the root, start hosts."""
    marked = file.startswith("tests/localcloud/") and "mark.root" in (ROOT / file).read_text(encoding="utf-8")
    return marked or file.startswith(E2E)


def rank(item: pytest.Item) -> int:
    """Order tests: the shared cloud first, then other hosts, then several ranks, so that what is short comes last."""
    if shares_cloud(item.nodeid.split("::")[0]):
        return 0
    if item.nodeid.startswith(OWN_CLOUDS):
        return 1
    markers = {marker.name for marker in item.iter_markers()}
    return next((place for place, name in enumerate(LONG_FIRST, start=2) if name in markers), 2 + len(LONG_FIRST))


class CloudByCloud(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types of its own
    """Give all tests of the shared cloud to one process, those with mere hosts to one, and other files to any."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        if shares_cloud(file):
            return "shared cloud"
        return "hosts" if has_hosts(file) and not file.startswith(OWN_CLOUDS) else file


@pytest.hookimpl(optionalhook=True)  # -p no:xdist has none
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> CloudByCloud | None:
    """Return what deals the tests to processes under `--dist loadfile`."""
    return CloudByCloud(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=rank)
    for item in items:
        missing = missing_for({marker.name for marker in item.iter_markers()})
        if not missing:
            continue
        reason = f"needs {', '.join(dict.fromkeys(missing))}"
        if os.environ.get(REQUIRE_ALL) == "1":
            item.stash[MISSING] = f"{reason}; {REQUIRE_ALL}=1 says that every test must run. Try `make setup`."
            continue
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that must run and cannot; let those that compute give way to those that wait for hosts."""
    computes = not has_hosts(item.nodeid.split("::")[0])
    if computes and "PYTEST_XDIST_WORKER" in os.environ and os.getpriority(os.PRIO_PROCESS, 0) == 0:
        os.nice(GIVE_WAY)
    if why := item.stash.get(MISSING, None):
        pytest.fail(why, pytrace=False)

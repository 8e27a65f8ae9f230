"""A booting master takes over from the previous one only what matches the digest in the parameter."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.runs import trusted_spec
from agent.runs.node_claims import Runs
from agent.supervisor.handover import Handover
from tests.agent.lost_runs import lose
from tests.stacks.boot.nodelab import Lab, Node
from tests.waiting import eventually

AGENT = Path(__file__).parents[3] / "agent"
TREE = "0123456789abcdef"
HOME = "home/ec2-user"
INHERITED = "opt/deepcdk/inherited"


@pytest.fixture
def runs(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Return the runs on the shared file system. The previous master has accepted one of them."""
    former = tmp_path / "former"
    monkeypatch.setenv("HOME", str(former))
    runs = Runs(root=lab.shared / "runs")
    runs.root.mkdir()
    lose(runs)
    tree = former / ".deepcdk/trees" / TREE
    shutil.copytree(AGENT, tree / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    conf = tmp_path / "node.conf"
    conf.write_text("region=us-east-1\nhandover_parameter=CFN-RolesHandover\n")
    told = lab.folder / "handover"

    def tell(command: list[str]) -> subprocess.Popen[bytes]:
        told.write_text(command[command.index("--value") + 1])
        return subprocess.Popen(["true"], stdout=subprocess.PIPE)

    Handover(runs, pytest.fail, conf=conf, tree=lambda: tree, start=tell).keep_up()  # type: ignore[arg-type]
    return runs


@pytest.fixture
def master(lab: Lab, runs: Runs) -> Node:
    """Return a booted master. Its watcher has not run."""
    node = lab.node("master", 1)
    status, said = node.boot()
    assert status == 0, said
    python = node.root / "opt/deepcdk/bin/python3"
    python.unlink()
    python.symlink_to(sys.executable)  # the lab's fake command runs nothing
    node.forget_watcher()
    return node


@pytest.fixture
def archive(lab: Lab, runs: Runs) -> Path:
    """Return the archive that the previous master left on the shared file system."""
    return runs.root / ".handover" / f"{(lab.folder / 'handover').read_text()}.tar"


def is_later(path: Path, than: int) -> bool:
    return path.stat().st_mtime_ns > than


def watching(node: Node, **changes: str) -> Iterator[subprocess.Popen[str]]:
    watcher = node.registry("watch", DEEPCDK_PAUSE_S="0.05", DEEPCDK_INHERIT_S="1", **changes)
    try:
        yield watcher
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)


def test_replacement_master_restores_agent_and_digests_and_runs_hook(
    master: Node, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in watching(master):
        eventually(lambda: (master.root / "watchers").exists())
    home = master.root / HOME
    hook = home / ".deepcdk/at-boot"
    started = f"setpriv --reuid {os.getuid()} --regid {os.getgid()} --init-groups {hook}"
    assert master.text("watchers").strip() == started
    assert (home / ".deepcdk/trees" / TREE / "agent/supervisor/scheduler.py").read_bytes() == (
        AGENT / "supervisor/scheduler.py"
    ).read_bytes()
    assert f"cd {home}/.deepcdk/trees/{TREE} && exec" in hook.read_text()
    assert hook.stat().st_uid == os.getuid()
    monkeypatch.setenv("HOME", str(home))
    assert trusted_spec.read("one").run_id == "one"
    assert not (home / ".deepcdk/handover").exists()
    assert master.text(INHERITED).strip() == master.instance_id


@pytest.mark.parametrize("change", ["a flipped bit", "a longer one", "a link to another", "nothing there"])
def test_changed_archive_is_ignored_until_the_original_is_restored(master: Node, archive: Path, change: str) -> None:
    whole = archive.read_bytes()
    archive.unlink()
    if change == "a flipped bit":
        archive.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    elif change == "a longer one":
        archive.write_bytes(whole + b"\0")
    elif change == "a link to another":
        archive.symlink_to("/dev/zero")
    for _ in watching(master):
        asked = master.root / "opt/deepcdk/handover.errors"
        eventually(asked.exists)
        eventually(functools.partial(is_later, asked, asked.stat().st_mtime_ns))  # the first attempt is over
        assert not (master.root / INHERITED).exists()
        assert not (master.root / HOME / ".deepcdk/trees").exists()
        assert not (master.root / "watchers").exists()
        archive.unlink(missing_ok=True)
        archive.write_bytes(whole)
        eventually(lambda: (master.root / "watchers").exists())
    assert (master.root / INHERITED).exists()


def test_master_without_predecessor_asks_once(lab: Lab, master: Node) -> None:
    (lab.folder / "handover").write_text("none")
    for _ in watching(master):
        eventually(lambda: (master.root / INHERITED).exists())
    assert not (master.root / HOME / ".deepcdk").exists()


def test_reboot_restores_nothing_and_runs_hook_without_aws(lab: Lab, master: Node) -> None:
    hook = master.root / HOME / ".deepcdk/at-boot"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    (master.root / INHERITED).write_text(f"{master.instance_id}\n")
    for _ in watching(master, LAB_DENIED="1"):
        eventually(lambda: (master.root / "watchers").exists())
    assert hook.read_text() == "#!/bin/sh\n"


def test_disk_cloned_from_another_master_is_cleared(lab: Lab, master: Node) -> None:
    own = master.root / HOME / ".deepcdk"
    own.mkdir(parents=True)
    (own / "runs.sqlite").write_text("of another master")
    (own / "runs.sqlite-wal").write_text("of another master")
    (own / "at-boot").write_text("#!/bin/sh\n")
    (own / "at-boot").chmod(0o755)
    (master.root / INHERITED).write_text("i-0fedcba9876543210\n")
    (lab.folder / "handover").write_text("none")
    for _ in watching(master):
        eventually(lambda: master.text(INHERITED).strip() == master.instance_id)
    assert not (own / "at-boot").exists()
    assert not list(own.glob("runs.sqlite*"))
    assert not (master.root / "watchers").exists()


def test_invalid_digest_differs_from_missing_digest(lab: Lab, master: Node) -> None:
    (lab.folder / "handover").write_text("a warning of the CLI\nnone")
    for _ in watching(master):
        eventually((master.root / "opt/deepcdk/handover.errors").exists)
        eventually((master.root / "opt/deeplearning/nodes").exists)
        assert not (master.root / INHERITED).exists()


def test_master_asks_again_without_aws(master: Node) -> None:
    beats = master.root / "opt/deeplearning/nodes"
    for _ in watching(master, LAB_DENIED="1"):
        eventually(beats.exists)
    assert not (master.root / INHERITED).exists()
    for _ in watching(master):
        eventually(lambda: (master.root / INHERITED).exists())


def test_master_continues_without_archive_after_time_limit(master: Node, archive: Path) -> None:
    archive.unlink()
    hook = master.root / HOME / ".deepcdk/at-boot"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    for _ in watching(master, DEEPCDK_INHERIT_LIMIT_S="2"):
        eventually(lambda: (master.root / "watchers").exists())
    assert (master.root / INHERITED).exists()

"""The handover from a master to its replacement: its content, the digest in AWS, and taking it over."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.remote.ssh import OWN_TREE
from agent.runs import run_queue, trusted_spec
from agent.runs.node_claims import Runs
from agent.spec.run_states import QUEUED
from agent.supervisor import boot_hook, cli, current_master, handover, scheduler
from agent.supervisor.handover import Handover, take_over
from tests.agent.lost_runs import lose
from tests.factories import make_spec, make_state

PARAMETER = "CFN-RolesHandover"


class Aws:
    """A fake AWS that records values. Each call is a process that has exited, or still runs if `slow`."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.status, self.slow = 0, False
        self.calls: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        assert "put-parameter" in command
        assert command[command.index("--name") + 1] == PARAMETER
        assert command[command.index("--region") + 1] == "us-east-1"
        self.values.append(command[command.index("--value") + 1])
        does = "exec sleep 60" if self.slow else f"echo AccessDenied; exit {self.status}"
        call = subprocess.Popen(["sh", "-c", does], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not self.slow:
            call.wait()
        self.calls.append(call)
        return call


@pytest.fixture
def aws() -> Aws:
    return Aws()


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    (tmp_path / "runs").mkdir()
    return Runs(root=tmp_path / "runs")


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "node.conf"
    path.write_text(f"role=master\nregion=us-east-1\nhandover_parameter={PARAMETER}\n")
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make the master's own copy of an agent."""
    path = tmp_path / "0123456789abcdef"
    for name, text in {"__init__.py": "", "launch/rank.py": "RANK = 1\n", "bin/ssh": "#!/bin/sh\n"}.items():
        (path / "agent" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "agent" / name).write_text(text)
    (path / "agent/bin/ssh").chmod(0o755)
    return path


class Kept:
    """A handover with the test's log, clock and AWS."""

    def __init__(self, runs: Runs, aws: Aws, conf: Path, tree: Path) -> None:
        self.now, self.said = 1000.0, list[str]()
        self.handover = Handover(
            runs, self.said.append, conf=conf, tree=lambda: tree, start=aws.start, clock=lambda: self.now
        )

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.handover.keep_up()


@pytest.fixture
def kept(runs: Runs, aws: Aws, conf: Path, tree: Path) -> Kept:
    return Kept(runs, aws, conf, tree)


def archives(runs: Runs) -> list[str]:
    return sorted(path.stem for path in (runs.root / handover.FOLDER).glob("*.tar"))


def test_digest_of_the_archive_is_stored_in_aws_once_per_change(runs: Runs, aws: Aws, kept: Kept) -> None:
    lose(runs)
    kept.rounds(5)
    (first,) = aws.values
    assert archives(runs) == [first]
    assert hashlib.sha256((runs.root / f".handover/{first}.tar").read_bytes()).hexdigest() == first
    trusted_spec.accept(make_spec(run_id="one", restarts=7))  # as after a resume
    kept.rounds(5)
    (_, second) = aws.values
    assert (archives(runs), second != first) == ([second], True), "the earlier one goes once AWS knows the next"
    runs.release("one")
    kept.rounds(5)
    assert (aws.values[2:], archives(runs)) == ([handover.NOTHING], [])


def test_same_content_has_same_digest_for_every_packer(
    runs: Runs, aws: Aws, kept: Kept, conf: Path, tree: Path
) -> None:
    lose(runs)
    kept.rounds(1)
    (tree / "agent/launch/__pycache__").mkdir()
    (tree / "agent/launch/__pycache__/rank.cpython-312.pyc").write_bytes(b"x")
    Kept(runs, aws, conf, tree).rounds(1)
    assert aws.values[0] == aws.values[1]


def test_upload_in_progress_is_not_awaited(runs: Runs, aws: Aws, kept: Kept) -> None:
    lose(runs)
    aws.slow = True
    try:
        kept.rounds(3)
        assert (len(aws.values), kept.handover.is_settled) == (1, False)
        lose(runs, restarts=2)
        kept.rounds(3)
        assert len(aws.values) == 1
    finally:
        for call in aws.calls:
            call.kill()
            call.wait()
    aws.slow = False
    kept.rounds(2)
    assert (len(aws.values), kept.handover.is_settled) == (2, True)


def test_rejection_is_logged_once_and_again_after_a_minute(runs: Runs, aws: Aws, kept: Kept) -> None:
    lose(runs)
    aws.status = 254
    kept.rounds(5)
    assert (len(aws.values), kept.handover.is_settled) == (1, True)
    for _ in range(3):
        kept.now += handover.RETRY_S
        kept.rounds(3)
    assert len(aws.values) == 4
    assert kept.said == [
        "a master that replaces this one could not continue the runs: AccessDenied; retrying every minute"
    ]
    assert len(archives(runs)) == 1
    aws.status, kept.now = 0, kept.now + handover.RETRY_S
    kept.rounds(5)
    assert len(aws.values) == 5


def test_full_disk_is_a_temporary_failure(runs: Runs, aws: Aws, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(runs)

    def full(folder: int, name: str, data: bytes) -> None:
        raise OSError(28, "No space left on device", name)

    with monkeypatch.context() as context:
        context.setattr(handover, "_write", full)
        kept.rounds(3)
    assert (aws.values, len(kept.said), "No space left" in kept.said[0]) == ([], 1, True)
    kept.now += handover.RETRY_S
    kept.rounds(1)
    assert len(aws.values) == 1


def test_archive_is_written_again_periodically(runs: Runs, aws: Aws, kept: Kept) -> None:
    lose(runs)
    kept.rounds(2)
    (digest,) = archives(runs)
    (runs.root / f".handover/{digest}.tar").write_bytes(b"what a worker's root has put there")
    kept.now += handover.AGAIN_S
    kept.rounds(2)
    assert aws.values == [digest, digest], "as a change of the stack may have set the parameter back"
    assert hashlib.sha256((runs.root / f".handover/{digest}.tar").read_bytes()).hexdigest() == digest


def test_handover_folder_that_is_a_link_is_not_followed(runs: Runs, aws: Aws, kept: Kept, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / f"{'a' * 64}.tar").touch()
    (runs.root / ".handover").symlink_to(mine)
    lose(runs)
    kept.rounds(3)
    assert (aws.values, len(kept.said)) == ([], 1)
    assert [path.name for path in mine.iterdir()] == [f"{'a' * 64}.tar"]
    (runs.root / ".handover").unlink()
    for name in (f"{'b' * 64}.tar", "c.tar"):
        (runs.root / ".handover" / name).mkdir(parents=True)
    kept.now += handover.RETRY_S
    kept.rounds(3)
    assert len(aws.values) == 1
    assert archives(runs) == sorted([aws.values[0], "b" * 64, "c"])


def test_run_without_restarts_is_not_handed_over(runs: Runs, aws: Aws, kept: Kept) -> None:
    lose(runs, restarts=0)
    kept.rounds(2)
    assert aws.values == [handover.NOTHING]


def test_archived_agent_is_the_one_named_in_boot_hook(
    runs: Runs, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert boot_hook.hooked_tree() == OWN_TREE
    spaced = tmp_path / "a tree"
    shutil.copytree(tree, spaced)
    for written in (tree, spaced):  # The newest submission replaces the hook.
        boot_hook.write_boot_hook(runs, written)
        assert boot_hook.hooked_tree() == written
    hook = Path.home() / boot_hook.HOOK
    before = hook.stat().st_ino
    boot_hook.write_boot_hook(runs, spaced)
    assert hook.stat().st_ino == before, "an unchanged hook is not written again"
    shutil.rmtree(spaced)
    assert boot_hook.hooked_tree() == OWN_TREE


@pytest.mark.parametrize("text", ["", "role=master\nregion=us-east-1\nhandover_parameter=''\n"])
def test_master_of_earlier_version_hands_nothing_over(runs: Runs, aws: Aws, conf: Path, tree: Path, text: str) -> None:
    lose(runs)
    conf.write_text(text)
    kept = Kept(runs, aws, conf, tree)
    kept.rounds(2)
    assert (aws.values, archives(runs), kept.handover.is_settled) == ([], [], True)


def test_scheduler_clears_handover_before_it_exits(
    runs: Runs, aws: Aws, conf: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(runs, aws, conf, tree)
    monkeypatch.setattr(scheduler, "Handover", lambda runs, log: kept.handover)
    monkeypatch.setattr("agent.supervisor.scheduler.time.sleep", lambda seconds: None)
    scheduler.run(runs)
    assert (aws.values, kept.handover.is_settled) == ([handover.NOTHING], True)


def unpacked(runs: Runs, into: Path) -> Path:
    (name,) = archives(runs)
    into.mkdir()
    subprocess.run(["tar", "-xf", runs.root / f".handover/{name}.tar", "-C", into], check=True)
    return into


def test_next_master_has_the_agent_the_database_and_the_hook(
    runs: Runs, kept: Kept, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(runs)
    kept.rounds(1)
    home = tmp_path / "next"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(SpecError, match="another master accepted run one"):
        trusted_spec.read("one")
    taken = take_over(unpacked(runs, tmp_path / "left"), runs, home)
    assert taken == home / ".deepcdk/trees/0123456789abcdef"
    there = {path.relative_to(taken): path.read_bytes() for path in taken.rglob("*") if path.is_file()}
    assert there == {path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert (taken / "agent/bin/ssh").stat().st_mode & 0o111
    assert trusted_spec.read("one").run_id == "one"
    hook = home / boot_hook.HOOK
    assert hook.read_text().splitlines()[1].startswith(f"cd {taken} && exec ")
    assert hook.read_text().rstrip().endswith(" schedule")


def test_runs_started_after_backup_are_resumed_and_not_queued(
    runs: Runs, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(runs)
    two = runs["two"]
    two.path.mkdir()
    trusted_spec.accept(make_spec(run_id="two", restarts=1))
    two.write_state(make_state(run_id="two", state=QUEUED))
    kept.rounds(1)
    runs["one"].mark_failed("over")
    two.write_state(make_state(run_id="two", updated=3.0))
    (two.path / "course.json").write_text('{"times": {"started": 1.0}}')
    left = unpacked(runs, tmp_path / "left")
    monkeypatch.setenv("HOME", str(tmp_path / "next"))
    take_over(left, runs, tmp_path / "next")
    assert (runs.live(), run_queue.ids(), two.continues) == (["two"], [], True)
    assert runs["one"].stored_state().reason == "over", "it does not run again"
    assert runs.lost() == ["one", "two"]


def test_existing_files_of_next_master_are_kept(
    runs: Runs, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(runs)
    kept.rounds(1)
    home = tmp_path / "next"
    (home / ".deepcdk/trees/0123456789abcdef/agent").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    trusted_spec.accept(make_spec(run_id="one", restarts=7))
    left = unpacked(runs, tmp_path / "left")
    for _ in range(2):
        taken = take_over(left, runs, home)
    assert (trusted_spec.read("one").restarts, list((taken / "agent").iterdir())) == (7, [])


@pytest.mark.parametrize(
    "contents",
    [
        {"tree": "../../etc"},
        {"tree": "0123456789abcdef"},
        {},
    ],
)
def test_invalid_archive_is_rejected(
    runs: Runs, tmp_path: Path, contents: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "left"
    (left / "agent").mkdir(parents=True)
    (left / handover.CONTENTS).write_text(json.dumps(contents))
    (left / handover.DATABASE).write_bytes(b"no database")
    monkeypatch.chdir(left)
    assert handover.main([str(runs.root)]) == 1
    assert not (Path.home() / boot_hook.HOOK).exists()


@pytest.fixture
def booting(conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Act as a master that has not asked yet; return the file that records that it has."""
    conf.write_text(f"instance_id=i-0123456789abcdef0\n{conf.read_text()}")
    inherited = tmp_path / "inherited"
    settled = current_master.is_settled
    monkeypatch.setattr(current_master, "is_settled", lambda: settled(conf, inherited))
    return inherited


def test_booting_master_is_ready_after_its_instance_has_asked(booting: Path, tmp_path: Path) -> None:
    assert not current_master.wait_until_settled(0.0)
    booting.write_text("i-0fedcba9876543210\n")
    assert not current_master.wait_until_settled(0.0), "the disk is an image of another master's"
    booting.write_text("i-0123456789abcdef0\n")
    assert current_master.wait_until_settled(0.0)


def test_other_machines_and_earlier_masters_do_not_wait(tmp_path: Path) -> None:
    conf = tmp_path / "node.conf"
    assert current_master.is_settled(conf, tmp_path / "inherited")
    conf.write_text("instance_id=i-0123456789abcdef0\nhandover_parameter=''\n")
    assert current_master.is_settled(conf, tmp_path / "inherited")


def test_booting_master_changes_nothing_and_reports_it(
    runs: Runs, booting: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(runs)
    state = runs["one"].stored_state()
    monkeypatch.setattr(cli, "wait_until_settled", lambda: current_master.wait_until_settled(0.0))
    monkeypatch.setattr(scheduler, "TAKEN_OVER_S", 0.0)
    monkeypatch.setattr(scheduler, "ensure_running", pytest.fail)
    monkeypatch.setattr(scheduler, "recover_lost_runs", pytest.fail)
    root = ["--root", str(runs.root)]
    assert cli.main([*root, "stop", "one"]) == cli.FAILED
    assert cli.main([*root, "hold", "--every", "fab down"]) == cli.FAILED
    assert cli.main([*root, "status", "one"]) == 0
    assert capsys.readouterr().err.count("this master is new") == 3
    scheduler.run(runs)
    assert runs["one"].stored_state() == state
    assert [claim.run_id for claim in runs.claims()] == ["one"]

"""What a master leaves to the one that replaces it, when AWS is told of it, and what the next one takes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.runs import accepted_spec
from agent.runs.store import Runs
from agent.supervisor import boot_hook, handover, inheritance, scheduler
from agent.supervisor.handover import Handover, take_over
from tests.agent.lost_runs import lose
from tests.factories import make_spec

PARAMETER = "CFN-RolesHandover"


class Aws:
    """AWS as it is told of a value: each call is a process that has ended, or, `slow`, one that has not."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.status, self.slow = 0, False
        self.calls: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        assert "put-parameter" in command
        assert command[command.index("--name") + 1] == PARAMETER
        assert command[command.index("--region") + 1] == "us-east-1"
        self.values.append(command[command.index("--value") + 1])
        does = "sleep 60" if self.slow else f"echo AccessDenied; exit {self.status}"
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
    """A handover whose log, clock and AWS are the test's."""

    def __init__(self, runs: Runs, aws: Aws, conf: Path, tree: Path) -> None:
        self.now, self.said = 1000.0, list[str]()
        self.handover = Handover(runs, self.said.append, conf=conf, tree=tree, start=aws.start, clock=lambda: self.now)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.handover.keep_up()


@pytest.fixture
def kept(runs: Runs, aws: Aws, conf: Path, tree: Path) -> Kept:
    return Kept(runs, aws, conf, tree)


def archives(runs: Runs) -> list[str]:
    return sorted(path.stem for path in (runs.root / handover.FOLDER).glob("*.tar"))


def test_aws_is_told_the_digest_of_what_lies_among_the_runs_once_for_each_change(
    runs: Runs, aws: Aws, kept: Kept
) -> None:
    lose(runs)
    kept.rounds(5)
    (first,) = aws.values
    assert archives(runs) == [first]
    assert hashlib.sha256((runs.root / f".handover/{first}.tar").read_bytes()).hexdigest() == first
    accepted_spec.accept(make_spec(run_id="one", restarts=7))  # as after a resume
    kept.rounds(5)
    (_, second) = aws.values
    assert (archives(runs), second != first) == ([second], True), "the earlier one goes once AWS knows the next"
    runs.release("one")
    kept.rounds(5)
    assert (aws.values[2:], archives(runs)) == ([handover.NOTHING], [])


def test_the_same_content_has_the_same_digest_whoever_packs_it(
    runs: Runs, aws: Aws, kept: Kept, conf: Path, tree: Path
) -> None:
    lose(runs)
    kept.rounds(1)
    (tree / "agent/launch/__pycache__").mkdir()
    (tree / "agent/launch/__pycache__/rank.cpython-312.pyc").write_bytes(b"x")
    Kept(runs, aws, conf, tree).rounds(1)
    assert aws.values[0] == aws.values[1]


def test_what_is_under_way_is_not_waited_for(runs: Runs, aws: Aws, kept: Kept) -> None:
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


def test_a_refusal_is_logged_once_and_told_again_a_minute_later(runs: Runs, aws: Aws, kept: Kept) -> None:
    lose(runs)
    aws.status = 254
    kept.rounds(5)
    assert (len(aws.values), kept.handover.is_settled) == (1, True)
    for _ in range(3):
        kept.now += handover.RETRY_S
        kept.rounds(3)
    assert len(aws.values) == 4
    assert kept.said == [
        "a master that replaces this one would not go on with the runs: AccessDenied; tried again each minute"
    ]
    assert len(archives(runs)) == 1
    aws.status, kept.now = 0, kept.now + handover.RETRY_S
    kept.rounds(5)
    assert len(aws.values) == 5


def test_a_full_disk_is_a_failure_that_passes(
    runs: Runs, aws: Aws, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(runs)

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as context:
        context.setattr(handover, "write_atomically", full)
        kept.rounds(3)
    assert (aws.values, len(kept.said), "No space left" in kept.said[0]) == ([], 1, True)
    kept.now += handover.RETRY_S
    kept.rounds(1)
    assert len(aws.values) == 1


@pytest.mark.parametrize("text", ["", "role=master\nregion=us-east-1\nhandover_parameter=''\n"])
def test_a_master_of_an_earlier_version_leaves_nothing(runs: Runs, aws: Aws, conf: Path, tree: Path, text: str) -> None:
    lose(runs)
    conf.write_text(text)
    kept = Kept(runs, aws, conf, tree)
    kept.rounds(2)
    assert (aws.values, archives(runs), kept.handover.is_settled) == ([], [], True)


def test_a_scheduler_ends_only_once_aws_knows_that_nothing_is_left(
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


def test_the_next_master_has_the_agent_the_digests_and_the_hook(
    runs: Runs, kept: Kept, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(runs)
    kept.rounds(1)
    home = tmp_path / "next"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(SpecError, match="has not accepted the spec"):
        accepted_spec.read(runs["one"].spec)
    taken = take_over(unpacked(runs, tmp_path / "left"), runs, home)
    assert taken == home / ".deepcdk/trees/0123456789abcdef"
    there = {path.relative_to(taken): path.read_bytes() for path in taken.rglob("*") if path.is_file()}
    assert there == {path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert (taken / "agent/bin/ssh").stat().st_mode & 0o111
    assert accepted_spec.read(runs["one"].spec).run_id == "one"
    hook = home / boot_hook.HOOK
    assert hook.read_text().splitlines()[1].startswith(f"cd {taken} && exec ")
    assert hook.read_text().rstrip().endswith("schedule --wait 300")


def test_what_the_next_master_has_already_stays(
    runs: Runs, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(runs)
    kept.rounds(1)
    home = tmp_path / "next"
    (home / ".deepcdk/trees/0123456789abcdef/agent").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    accepted_spec.accept(make_spec(run_id="one", restarts=7))
    before = accepted_spec.digests("one")
    left = unpacked(runs, tmp_path / "left")
    for _ in range(2):
        taken = take_over(left, runs, home)
    assert (accepted_spec.digests("one"), list((taken / "agent").iterdir())) == (before, [])


@pytest.mark.parametrize(
    "contents",
    [
        {"tree": "../../etc", "specs": {}},
        {"tree": "0123456789abcdef", "specs": {"../one": []}},
        {"tree": "0123456789abcdef", "specs": {"one": ["x"]}},
    ],
)
def test_what_no_scheduler_has_written_is_refused(
    runs: Runs, tmp_path: Path, contents: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "left"
    (left / "agent").mkdir(parents=True)
    (left / handover.CONTENTS).write_text(json.dumps(contents))
    monkeypatch.chdir(left)
    assert handover.main([str(runs.root)]) == 1
    assert not (Path.home() / boot_hook.HOOK).exists()


def test_a_command_waits_for_a_booting_master_in_its_first_minute(
    conf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inherited, waited = tmp_path / "inherited", list[float]()

    def wait(condition: Callable[[], bool], *, timeout_s: float, poll_s: float) -> bool:
        waited.append(timeout_s)
        return condition()

    monkeypatch.setattr(inheritance, "wait_until", wait)
    inheritance.wait_until_taken_over(tmp_path / "none", inherited)
    assert (capsys.readouterr().err, waited) == ("", []), "a machine that is no node, or a worker"
    inheritance.wait_until_taken_over(conf, inherited)
    assert "runs of that one do not go on by themselves" in capsys.readouterr().err
    assert 30.0 < waited[0] <= inheritance.PATIENCE_S
    os.utime(conf, (0, 0))
    inheritance.wait_until_taken_over(conf, inherited)
    assert waited[1:] == [0.0], "on a master that has been up for longer nobody waits"
    inherited.touch()
    capsys.readouterr()
    inheritance.wait_until_taken_over(conf, inherited)
    assert (capsys.readouterr().err, len(waited)) == ("", 2)

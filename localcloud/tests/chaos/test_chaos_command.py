from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

from chaos.stage import Stage
from localcloud.chaos import chaos_command, runner
from localcloud.cli import main
from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError
from waiting import eventually

ROOT: Final = Path(__file__).resolve().parents[1]
BRIEF: Final = ("--seed", "5", "--first", "0", "--every", "1", "--longest", "1", "--duration", "2")


def test_unknown_cloud_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", "--name", "nowhere", "--seed", "1"]) == 1
    assert "no embedded cloud named nowhere is running" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--kinds", "cut,meteor"), "--kinds 'meteor': must be one of kill-rank, "),
        (("--kinds", " ,"), "--kinds: must list at least one kind"),
        (("--kinds", "cut,flip-bit"), "--kinds flip-bit needs --flip"),
        (("--kinds", "kill-supervisor"), "--kinds kill-supervisor needs --supervisor"),
        (("--kinds", "cut,reboot@("), "--kinds reboot@'(' is not a valid regular expression: missing )"),
        (("--first", "300"), "--first 300: must be less than --duration, 300"),
    ],
)
def test_conflicting_arguments_are_rejected_by_name(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert main(["chaos", "--name", "nowhere", "--seed", "1", *words]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--every=nan", "argument --every: 'nan' is not a number from 1 to 1,000,000 seconds"),
        ("--every=0.5", "argument --every: '0.5' is not a number from 1 to"),
        ("--first=-1", "argument --first: '-1' is not a number from 0 to"),
        ("--duration=inf", "argument --duration: 'inf' is not a number from 0 to"),
        ("--close=1.5", "argument --close: '1.5' is not a number from 0 to 1"),
        ("--hosts=(", "argument --hosts: '(' is not a valid regular expression: missing )"),
        ("--flip=/etc/*", "argument --flip: '/etc/*' must be relative to the shared file systems"),
        ("--flip=a/../../b", "argument --flip: 'a/../../b' must be relative"),
        ("--flip=a**", "argument --flip: 'a**' is not a valid file pattern"),
        ("--flip=.", "argument --flip: '.' is not a valid file pattern: it names no file"),
    ],
)
def test_malformed_arguments_are_rejected_by_name(capsys: pytest.CaptureFixture[str], word: str, told: str) -> None:
    with pytest.raises(SystemExit):
        main(["chaos", "--name", "nowhere", "--seed", "1", word])
    assert told in capsys.readouterr().err


class FakeCloud(Stage):
    """A cloud with two hosts. Faults affect the hosts that match `only`."""

    def __init__(self, layout: Layout, only: str) -> None:
        super().__init__(Path("/nonexistent"), 1, 1)
        self.only = only

    def hosts(self, only: str = "") -> list[dict[str, Any]]:
        return super().hosts(only or self.only)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> list[FakeCloud]:
    """Make commands use a fake cloud, and return the list of all fake clouds."""
    made: list[FakeCloud] = []

    def make(layout: Layout, only: str) -> FakeCloud:
        made.append(FakeCloud(layout, only))
        return made[-1]

    monkeypatch.setattr(chaos_command, "Cloud", make)
    monkeypatch.setattr(runner, "locked", lambda layout: nullcontext())
    return made


def chaos(*words: str) -> int:
    return main(["chaos", *BRIEF, *words])


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def drawn(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: one[name] for name in ("at_s", "kind", "place", "lasts_s", "seed")} for one in found if "kind" in one
    ]


@pytest.mark.root
def test_dry_run_shows_the_real_schedule(
    cloud: list[FakeCloud], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--kinds", "cut,terminate,reboot")
    assert chaos(*words, "--dry-run", "--record", str(tmp_path / "dry")) == 0
    assert cloud[0].asked == []
    shown = capsys.readouterr().out.splitlines()
    assert chaos(*words, "--record", str(tmp_path / "done")) == 0
    assert cloud[1].asked
    assert capsys.readouterr().out.splitlines()[: len(shown)] == shown
    planned, done = events(tmp_path / "dry"), events(tmp_path / "done")
    assert len(shown) == len(planned) > 1
    assert drawn(planned) == drawn(done)
    assert all("what" in event or "undone" in event for event in done)


@pytest.mark.root
def test_unmatched_hosts_and_unwritable_record_are_rejected_before_the_first_fault(
    cloud: list[FakeCloud], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chaos("--hosts", "wroker") == 1
    assert "--hosts 'wroker' matches no host; the hosts are: w1, w2" in capsys.readouterr().err
    assert chaos("--kinds", "reboot@mister") == 1
    assert "--kinds reboot@mister matches no host; the hosts are: w1, w2" in capsys.readouterr().err
    assert chaos("--record", str(tmp_path / "none/record")) == 1
    assert "none/record: cannot write to this file: No such file or directory" in capsys.readouterr().err
    assert [one.asked for one in cloud] == [[], [], []]


@pytest.mark.root
def test_hosts_of_a_kind_override_the_hosts_option(cloud: list[FakeCloud]) -> None:
    assert chaos("--hosts", "w1", "--kinds", "reboot@w2") == 0
    assert set(cloud[0].asked) == {("reboot_instances", "i-2")}


@pytest.mark.root
def test_fault_that_cannot_be_undone_fails_the_command(
    cloud: list[FakeCloud], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(self: FakeCloud, message: dict[str, str]) -> dict[str, Any]:
        if message["do"] == "mend":
            raise LocalCloudError("the daemon is busy")
        return {}

    monkeypatch.setattr(FakeCloud, "ask", ask)
    assert chaos("--kinds", "cut") == 1
    told = capsys.readouterr()
    assert "not undone: cut the network of w" in told.out and "not undone: cut the network of w" in told.err


CUT_FOR_LONG: Final = """
import signal, sys
from contextlib import nullcontext
from localcloud.chaos import chaos_command, runner
from localcloud.cli import main
from chaos.test_chaos_command import FakeCloud

class Announcing(FakeCloud):
    def ask(self, message):
        print(message["do"], flush=True)

for number in (signal.SIGINT, signal.SIGHUP):  # as nohup and a shell's background have the tests ignore them
    signal.signal(number, signal.SIG_DFL)
chaos_command.Cloud = Announcing
runner.locked = lambda layout: nullcontext()
sys.exit(main(["chaos", "--seed", "1", "--kinds", "cut", "--first", "0", "--longest", "1000"]))
"""


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_schedule_after_undoing_temporary_faults(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", CUT_FOR_LONG], stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout
        lines = [next(line for line in process.stdout if line == "cut\n")]
        os.kill(process.pid, number)
        os.kill(process.pid, number)
        lines += process.stdout
    assert process.returncode == 130
    assert lines.count("mend\n") == 1 and "undone: cut the network of w" in lines[-2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_blocked_signals_wait_and_ignored_signals_stay_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.default_int_handler)
    try:
        with chaos_command.blocked_signals() as signals:
            signal.raise_signal(number)
            found = eventually(lambda: signal.sigtimedwait(signals, 0))
            assert found.si_signo == number
            signal.raise_signal(number)
        assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        signal.signal(number, signal.SIG_IGN)
        with chaos_command.blocked_signals() as signals:
            assert number not in signals
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)

"""Facts about what a node reads of the processes of its ranks: from recorded /proc, and from real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.launch.rank_states import ProcessState, RankProcess, RankStates, is_reporter, parse_rank, parse_stat
from agent.spec.rank_command import REPORTING
from tests.waiting import eventually

STOPPED = (
    "19530 (python3) T 19529 19522 4100 0 -1 4194304 2874 6546 2 0 54 0 4 1 20 0 14 0 146270 998699008 3416 "
    "18446744073709551615 94773713195008 94773713195349 140735383245792 0 0 0 0 16781312 2 0 0 0 17 1 0 0 0 0 0 "
    "94773713206704 94773713207320 94773850697728 140735383246859 140735383247086 140735383247086 140735383248847 19\n"
)
"""/proc/PID/stat of a Python of 14 threads that had computed for half a second before SIGSTOP, on Linux 6.18."""


def test_the_state_of_a_process_is_parsed() -> None:
    expected = ProcessState(pid=19530, name="python3", state="T", cpu_ticks=54, threads=14, start_ticks=146270)
    assert parse_stat(STOPPED) == expected


def test_a_name_may_hold_parentheses_spaces_and_lines() -> None:
    found = parse_stat(STOPPED.replace("(python3)", "(a) T (b\n) S 1)"))
    assert (found.name, found.state, found.cpu_ticks) == ("a) T (b\n) S 1", "T", 54)


@pytest.mark.parametrize("text", ["", "7 (python3", "7 (python3) T 4702", STOPPED.replace(" 54 ", " x "), ") T" * 30])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not the state|invalid literal"):
        parse_stat(text)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOROVOD_RANK": "3"}, (3, True)),
        ({"DEEPCDK_RANK": "3", "RANK": "3"}, (3, True)),
        ({"HOROVOD_RANK": "3", "OMPI_COMM_WORLD_RANK": "3"}, (3, True)),
        ({"OMPI_COMM_WORLD_RANK": "2"}, (2, False)),
        ({"RANK": "1"}, (1, False)),
        ({}, (None, False)),
        ({"RANK": "-1"}, (None, False)),
        ({"RANK": "1" * 30}, (None, False)),
        ({"RANK": "²"}, (None, False)),
    ],
)
def test_a_rank_is_known_by_what_its_launcher_sets_and_so_is_what_stands_above_it(
    environment: dict[str, str], expected: tuple[int | None, bool]
) -> None:
    assert parse_rank(environment) == expected


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a starter of processes of run `one`, which are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: str, run: str = "one", **variables: str) -> subprocess.Popen[bytes]:
        environ = {"PATH": os.environ["PATH"], "DEEPCDK_RUN": run, "DEEPCDK_RUNS": str(tmp_path), **variables}
        process = subprocess.Popen(words or ["sleep", "600"], env=environ, start_new_session=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_processes_of_a_run_are_found_with_their_ranks_and_no_others(tmp_path: Path, start: Start) -> None:
    rank, parent = start(HOROVOD_RANK="3"), start(RANK="3")
    launcher, other = start(), start(run="two", HOROVOD_RANK="0")
    states = RankStates(str(tmp_path), "one")
    expected = {rank.pid: (3, True), parent.pid: (3, False), launcher.pid: (None, False)}

    def found() -> dict[int, tuple[int | None, bool]]:
        return {each.process.pid: (each.rank, each.is_own) for each in states.look()}

    eventually(lambda: found() == expected, what=found)
    assert other.pid not in found()
    rank.kill()
    del expected[rank.pid]
    eventually(lambda: found() == expected, what="a process that has ended is none, also where its parent does not ask")


def test_a_rank_that_is_stopped_is_in_state_t_and_where_it_waits_is_told(tmp_path: Path, start: Start) -> None:
    rank, states = start(HOROVOD_RANK="3"), RankStates(str(tmp_path), "one")

    def seen() -> RankProcess:
        (found,) = eventually(states.look)
        return found

    eventually(lambda: seen().process.name == "sleep")
    assert seen().process.state == "S"
    rank.send_signal(signal.SIGSTOP)
    eventually(lambda: seen().process.state == "T")
    assert states.waits(rank.pid) in ("1 in do_signal_stop", "")
    rank.send_signal(signal.SIGCONT)
    eventually(lambda: seen().process.state == "S")


def test_the_environment_of_a_rank_is_read_once(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    rank, states = start(HOROVOD_RANK="3"), RankStates(str(tmp_path), "one")
    eventually(states.look)
    read = Path.read_bytes

    def refusing(path: Path) -> bytes:
        assert path.parts[:3] != ("/", "proc", str(rank.pid)), "it may keep its reader waiting"
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)
    assert [each.rank for each in states.look()] == [3]


def test_the_shell_above_a_rank_over_gloo_is_not_its_own(tmp_path: Path, start: Start) -> None:
    shell = start(*REPORTING, "sleep", "600", HOROVOD_RANK="3")
    states = RankStates(str(tmp_path), "one")

    def owns() -> list[bool]:
        return [each.is_own for each in states.look()]

    eventually(lambda: owns() == [False, True], what=owns)
    assert states.look()[0].process.pid == shell.pid


def test_a_shell_of_the_users_is_the_ranks_own() -> None:
    assert not is_reporter(b"/bin/sh\0-c\0./start.sh\0rank\0")
    assert is_reporter(b"\0".join(word.encode() for word in (*REPORTING, "python", "train.py")) + b"\0")

"""The hosts of a run: every host's result is kept, and waiting ends when it is cancelled."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agent.launch.run_hosts import CLEAR_S, LEFTOVERS, MASTER, Hosts
from agent.remote import ssh
from agent.remote.ssh import Completed
from tests.factories import AGENT, make_spec

SPEC = make_spec(run_id="one")


def hosts(
    run: Callable[[Sequence[str], float], Completed],
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
    said: list[str] | None = None,
) -> Hosts:
    lines = [] if said is None else said
    return Hosts(
        SPEC, Path("/mnt/efs/runs"), run, on_poll=lambda: None, is_cancelled=is_cancelled, log_line=lines.append
    )


def test_launcher_on_master_imports_no_files_of_ranks(tmp_path: Path) -> None:
    planted, proof = tmp_path / "payloads" / AGENT / "agent", tmp_path / "proof"
    (planted / "launch").mkdir(parents=True)
    for module in ("__init__.py", "launch/__init__.py", "launch/rank.py", "../json.py", "../sitecustomize.py"):
        (planted / module).write_text(f"open({str(proof)!r}, 'w')\n")
    own = Hosts(
        make_spec(efs_mount=str(tmp_path)), tmp_path / "runs", lambda argv, _: Completed(status=0, output=""),
        on_poll=lambda: None, is_cancelled=lambda: False, log_line=print,
    )  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        code = "import json, os, agent.launch.rank; print(agent.launch.rank.__file__, os.getcwd())"
        launcher = own.start([sys.executable, "-c", code], log)
        assert launcher.wait(timeout=60) == 0
    tree = Path(ssh.__file__).parents[2]
    assert (tmp_path / "log").read_text().split() == [f"{tree}/agent/launch/rank.py", str(tree)]
    assert not proof.exists()


def test_every_hosts_result_is_kept_under_its_name() -> None:
    def run(argv: Sequence[str], timeout_s: float) -> Completed:
        return Completed(status=int("deeplearning-worker2" in argv), output=f"{timeout_s:g}")

    found = hosts(run).everywhere([None, *SPEC.hosts], ["true"], 30.0)
    assert {name: (done.status, done.output) for name, done in found.items()} == {
        "this master": (0, "30"),
        "deeplearning-worker1": (0, "30"),
        "deeplearning-worker2": (1, "30"),
    }


def test_waiting_for_unreachable_host_stops_when_cancelled() -> None:
    answer = threading.Event()

    def run(argv: Sequence[str], timeout_s: float) -> Completed:
        if "deeplearning-worker2" in argv:
            answer.wait(timeout=60)
        return Completed(status=0, output="")

    wanted = iter([False, True])
    found = hosts(run, is_cancelled=lambda: next(wanted, True)).everywhere(SPEC.hosts, ["true"], 30.0)
    answer.set()
    assert set(found) <= {"deeplearning-worker1"}


def test_host_that_cannot_signal_its_ranks_is_reported() -> None:
    said: list[str] = []
    hosts(lambda argv, _: Completed(status=1, output="a\nno such run\n"), said=said).signal_run(
        signal.SIGKILL, wait_s=0.0
    )
    names = ("deeplearning-worker1", "deeplearning-worker2", "this master")
    assert sorted(said) == [f"{name}: cannot send SIGKILL to the run's processes: a | no such run" for name in names]


@pytest.mark.parametrize(("wait_s", "line"), [(5.0, ["still running 5 s after SIGTERM: processes 7, 8"]), (0.0, [])])
def test_processes_that_outlast_the_wait_are_logged(wait_s: float, line: list[str]) -> None:
    said: list[str] = []
    left = Completed(status=1, output='a banner\n{"signalled": [7], "left": [7, 8]}\n')
    hosts(lambda argv, _: left, said=said).signal_run(signal.SIGTERM, wait_s, hosts=SPEC.hosts[:1])
    assert said == [f"deeplearning-worker1: {text}" for text in line]


def test_signal_reaches_only_ranks_of_the_run_and_waits_for_their_exit() -> None:
    sent: list[tuple[Sequence[str], float]] = []

    def run(argv: Sequence[str], timeout_s: float) -> Completed:
        sent.append((argv, timeout_s))
        return Completed(status=0, output="")

    hosts(run).signal_run(signal.SIGTERM, wait_s=5.0)
    assert len(sent) == 3
    for argv, timeout_s in sent:
        words = " ".join(argv)
        assert " one SIGTERM 5 --ranks-only" in words
        assert timeout_s > 5.0
    here, *hosts_words = sorted((argv for argv, _ in sent), key=lambda argv: "deepcdk-rank" in argv)
    assert here[0] == "/bin/sh"
    assert [argv[1:3] for argv in hosts_words] == [["-l", "deepcdk-rank"]] * 2, "no other user may signal them"


def test_preparation_is_killed_only_on_nodes_still_preparing() -> None:
    sent: list[Sequence[str]] = []

    def run(argv: Sequence[str], timeout_s: float) -> Completed:
        sent.append(argv)
        late = "deeplearning-worker2" in argv and "prepare" in argv[-1]
        return Completed(status=ssh.TIMED_OUT if late else 0, output="")

    own = hosts(run)
    own.end_preparation()
    assert sent == []
    own.prepare(["prepare"], 30.0, admission="run 1 10.0.0.1", dirty=[])
    sent.clear()
    own.end_preparation()
    own.end_preparation()
    (only,) = sent
    assert only[1] == "deeplearning-worker2", "the login user's processes, so no other user may kill them"
    assert " one SIGKILL " in only[-1] and "--ranks-only" not in only[-1]


def test_root_clears_the_dirty_hosts_while_all_nodes_are_prepared() -> None:
    sent: list[tuple[Sequence[str], float]] = []

    def run(argv: Sequence[str], timeout_s: float) -> Completed:
        sent.append((argv, timeout_s))
        return Completed(status=0, output=argv[-1])

    two = SPEC.hosts[1]
    prepared, admitted, cleared = hosts(run).prepare(["prepare"], 1800.0, admission="run 1 10.0.0.1", dirty=[two])
    names = [host.name for host in SPEC.hosts]
    assert (set(prepared), set(admitted), set(cleared)) == ({MASTER, *names}, set(names), {two.name})
    assert [found.output for found in admitted.values()] == ["run 1 10.0.0.1"] * 2
    assert [(list(argv), limit_s) for argv, limit_s in sent if argv[-1] == LEFTOVERS] == [
        (list(ssh.as_root(two, LEFTOVERS)), CLEAR_S)
    ]


def test_clearing_that_has_started_is_waited_for_at_a_cancellation() -> None:
    """It would kill the ranks of the run that gets the host next."""
    is_cancelled, ended = threading.Event(), threading.Event()

    def run(argv: Sequence[str], timeout_s: float) -> Completed:
        is_cancelled.set()
        if argv[-1] == LEFTOVERS:
            time.sleep(0.3)
            ended.set()
        return Completed(status=0, output="")

    found = hosts(run, is_cancelled=is_cancelled.is_set).clear(SPEC.hosts[:1])
    assert ended.is_set() and set(found) == {SPEC.hosts[0].name}


def test_launcher_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.launch.run_hosts.END_S", 0.3)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    command = [sys.executable, "-c", deaf]
    own = hosts(lambda argv, _: Completed(status=0, output=""))
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        own.kill(launcher)
        assert launcher.wait(timeout=60) == -signal.SIGKILL

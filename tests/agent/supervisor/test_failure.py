"""The reason for a run's end: a node that AWS reclaims, silent ranks, or the rank that exited first."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.spec.nodes import LEAVING
from agent.supervisor.failure import (
    describe_status,
    first_ended_rank,
    format_ranks,
    lost_connection,
    lost_network,
    reason,
)
from agent.supervisor.launcher_messages import last_attempt, log_bytes
from tests.factories import make_nodes, make_spec

LOG = """\
[1]<stderr>:ValueError: no such file
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be \
terminated. The first process to do so was:
Process name: {}
Exit code: {}

Process 0 exit with status code 1.
"""
HOSTS = make_nodes(2, slots=4)
FOUR = make_nodes(2, slots=2)


TRACEBACK = """\
[1]<stderr>:Traceback (most recent call last):
[0]<stderr>:ConnectionError: peer closed
[1]<stderr>:  File "train.py", line 3, in <module>
[1]<stderr>:    raise RuntimeError("no driver")
"""


@pytest.mark.parametrize("mark", ["", "[rank1]: "])
@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("", "RuntimeError: no driver"),
        (
            "\nDuring handling ...\n\nTraceback (most recent call last):\n  File\nKeyError: 'x'\nexiting",
            "KeyError: 'x'",
        ),
        ("Traceback (most recent call last):\n  File\nsubprocess.CalledProcessError: x", "RuntimeError: no driver"),
        ("Traceback (most recent call last):\n  File\nChildFailedError:", "RuntimeError: no driver"),
        (
            "  + Exception Group Traceback (most recent call last):\n  |   File\n  | ExceptionGroup: two (2 "
            "sub-exceptions)\n  +-+---- 1 ----\n    | ValueError: one\n    +----",
            "ExceptionGroup: two (2 sub-exceptions)",
        ),
        (
            "Traceback (most recent call last):\n  File\nAttributeError: in user code:\n\n    File 't.py', line 20\n\n"
            "    AttributeError: no 'ref'\n\ndeepcdk: the tape needs variables\n  do: give --keras 2;\n      or edit",
            "AttributeError: no 'ref'; the tape needs variables; do: give --keras 2",
        ),
        (
            "Traceback (most recent call last):\n  File\nRuntimeError: Error(s) in loading state_dict for Net:\n"
            '\tMissing key(s): "fc.weight".\n\tsize mismatch',
            'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): "fc.weight".',
        ),
        ("Traceback (most recent call last):\n  File\nOSError: these:\nnext line", "OSError: these:"),
    ],
)
def test_reason_is_the_programs_own_exception(mark: str, after: str, expected: str) -> None:
    """Reported with pytorch/examples, nanoGPT and lightning-hydra-template."""
    log = TRACEBACK.replace("r>:T", f"r>:{mark}T").replace("r>: ", f"r>:{mark} ")
    log += "".join(f"[1]<stderr>:{mark}{line}\n" for line in ("RuntimeError: no driver", *after.splitlines()))
    log += "[launcher] rank 1 exited first: {}\n"
    first = f"rank 1 on {HOSTS[0].name} exited first, with"
    assert reason(make_spec(hosts=FOUR), 1, log.format(1)) == f"{first} status 1: {expected}"
    assert reason(make_spec(hosts=FOUR), 1, log.format(-9)) == f"{first} signal 9 (Killed)", (
        "it did not end by its exception"
    )


@pytest.mark.parametrize(
    ("lines", "status", "expected"),
    [
        (
            "[2]<stderr>:the data set is missing: give --data\n",
            1,
            "; its last line: the data set is missing: give --data",
        ),
        ("[2]<stderr>:usage: t.py\n[2]<stderr>:t.py: error: no --data\n", 2, "; its last line: t.py: error: no --data"),
        ("[2]<stderr>:give --data\n[2]<stderr>:=====\n", 1, "; its last line: give --data"),
        ("[2]<stderr>:a warning\n[2]<stdout>:step 1\n", 1, ""),
        ("[2]<stderr>:[placement] 1 socket\n", 1, ""),
        ("[1]<stderr>:give --data\n", 1, ""),
        ("[2]<stderr>:give --data\n", 3, ""),
    ],
)
def test_reason_is_the_line_with_which_the_program_exited(lines: str, status: int, expected: str) -> None:
    named = f"rank 2 on {HOSTS[1].name} exited first, with status {status}{expected}"
    assert reason(make_spec(hosts=FOUR), 1, f"{lines}[launcher] rank 2 exited first: {status}\n") == named


def test_interrupted_node_is_reported_with_fix(tmp_path: Path) -> None:
    spec = make_spec(hosts=HOSTS, efs_mount=str(tmp_path))
    place = tmp_path / LEAVING / HOSTS[1].instance_id
    place.parent.mkdir(parents=True)
    place.write_text('EC2 interrupts this spot instance: {"action": "terminate", "time": "2026-11-20T12:00:00Z"}\n')
    assert reason(spec, 1, LOG.format(1, 143)) == (
        f"{HOSTS[1].name} is leaving the cluster (EC2 interrupts this spot instance); "
        f"to continue once its group has launched a replacement: `fab resume {spec.run_id}`"
    )


def test_notice_of_another_instance_is_ignored(tmp_path: Path) -> None:
    (tmp_path / LEAVING).mkdir(parents=True)
    (tmp_path / LEAVING / "i-other").write_text("its group terminates this instance\n")
    assert reason(make_spec(efs_mount=str(tmp_path)), 7, "") == "the launcher exited with status 7"


def test_first_failed_rank_is_reported_with_host() -> None:
    spec = make_spec(hosts=FOUR)
    assert reason(spec, 1, LOG.format(3, 2)) == f"rank 3 on {HOSTS[1].name} exited first, with status 2"
    assert reason(spec, 1, LOG.format(9, -9)) == "rank 9 exited first, with signal 9 (Killed)"
    # A log of two attempts contains both; only the last one counts.
    assert "rank 0" in reason(spec, 1, LOG.format(3, 2) + LOG.format(0, 1))


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (
            "--------\nmpirun detected that one or more processes exited with non-zero status, thus causing\n"
            "the job to be terminated. The first process to do so was:\n\n"
            "  Process name: [[6704,1],1]\n  Exit code:    3\n--------\n",
            f"rank 1 on {HOSTS[0].name} exited first, with status 3",
        ),
        (
            "mpirun noticed that process rank 4 with PID 29511 on node ip-10-0-1-11 exited on signal 9 (Killed).\n",
            f"rank 4 on {HOSTS[1].name} exited first, with signal 9 (Killed)",
        ),
        (
            "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[14671,0],0] on node ip-10-0-0-5\n"
            "  Remote daemon: [[14671,0],2] on node deeplearning-worker2\n\nThis is usually due to either a failure\n",
            "deeplearning-worker2 no longer responds; do: `fab replace worker2`, then `fab resume`",
        ),
    ],
)
def test_messages_of_mpirun_about_ranks_and_hosts_are_parsed(output: str, why: str) -> None:
    assert reason(make_spec(hosts=HOSTS), 1, output) == why


HOSTILE_LOGS = {
    "daemon": "lost communication with a remote daemon\n",
    "daemon without line ends": "lost communication with a remote daemon",
    "Gloo": "pair.cc:1]",
    "Gloo's address": "pair.cc:1] [1.1.1.1]:1: ",
    "Gloo's lines": "pair.cc:1] " + "1.1.1.1" * 500 + "\n",
    "Open MPI": "btl_tcp ",
    "NCCL": "Call to a failed : ",
    "SSH": "Connection to a",
    "Horovod": "[0]<stderr>:Timed out waiting ",
    "signal": "process rank 1 with PID 1 on node ",
    "first": "The first process to do so was: \n Process name: 1 \n",
    "digits": "1",
    "spaces": " ",
}


@pytest.mark.parametrize("part", HOSTILE_LOGS.values(), ids=HOSTILE_LOGS)
def test_time_to_find_the_reason_grows_only_with_size_of_log(part: str) -> None:
    """A pattern with quadratic time would take minutes to hours for these logs."""
    log = (part * (1 + (2 << 20) // len(part)))[: 2 << 20]
    began = time.process_time()
    assert reason(make_spec(hosts=HOSTS), 1, log) == "the launcher exited with status 1"
    assert lost_network(HOSTS, last_attempt(log)) == lost_connection(HOSTS, last_attempt(log)) == ""
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    "line",
    [
        "Process name: [[1,1],{}]\nExit code: {}\n",
        "The first process to do so was:\nProcess name: {}\nExit code: {}\n",
        "[launcher] rank {} exited first: {}\n",
        "[launcher] worker ended: {}\n",
        "process rank {} with PID 1 on node a exited on signal {}\n",
        "[{}]<stderr>:Horovod has been shut down\n",
        "[0]<stderr>:Timed out waiting {}ms for \n",
    ],
)
def test_number_with_too_many_digits_is_ignored(line: str) -> None:
    digits = "9" * 4000
    log = line.format(digits, digits)
    assert reason(make_spec(hosts=HOSTS), 1, log) == "the launcher exited with status 1"
    log = line.format("9" * 5000, "9" * 5000)
    assert reason(make_spec(hosts=HOSTS), 1, log) == "the launcher exited with status 1"


def test_only_ranks_of_the_run_are_named() -> None:
    line = "[{}]<stderr>:Horovod has been shut down\n"
    log = "[0]<stderr>:Timed out waiting 5000ms for \n" + "".join(line.format(rank) for rank in range(0, 20_000, 2))
    assert len(reason(make_spec(hosts=HOSTS), 1, log)) < 500


def test_launcher_without_output_is_reported_with_its_status() -> None:
    assert reason(make_spec(), -9, "killed") == "the launcher exited with signal 9 (Killed)"


LOGS = Path(__file__).parent / "launcher_logs"
"""Output of Horovod's launcher with 4 ranks, one of which is stopped by SIGSTOP, killed, or ends with an exception.

TensorFlow's start-up messages and the lines of tracebacks are removed.
"""
ONE, TWO = (host.name for host in HOSTS)


def recorded(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def shortened(log: str, *ranks: int) -> str:
    """Return a log without the lines of these ranks."""
    begin = tuple(f"[{rank}]<" for rank in ranks)
    return "".join(line for line in log.splitlines(keepends=True) if not line.startswith(begin))


NO_ERROR = "printed no error when a collective timed out after"
HUNG = "the rank hung, or its node was cut off"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("frozen-3", f"rank 3 on {TWO} {NO_ERROR} 10 s, but ranks 0-2 did: {HUNG}"),
        ("frozen-0", f"rank 0 on {ONE} {NO_ERROR} 15 s, but ranks 1-3 did: {HUNG}"),
        ("not-joined-3", f"rank 3 on {TWO} had not connected when the others timed out after 15 s, but ranks 0-2 had"),
        ("killed-1", f"rank 1 on {ONE} exited first, with status 137 (Killed)"),
        ("raised-1", f"rank 1 on {ONE} exited first, with status 1: ValueError: no such file"),
    ],
)
def test_faulty_rank_is_named_if_log_shows_it(name: str, why: str) -> None:
    assert reason(make_spec(hosts=FOUR), 1, recorded(name)) == why


def test_innocent_rank_exited_first_in_recorded_logs() -> None:
    for name, frozen in (("frozen-3", 3), ("frozen-0", 0), ("not-joined-3", 3)):
        found = first_ended_rank(FOUR, recorded(name))
        assert found
        assert f"rank {frozen} " not in found


def test_several_silent_ranks_are_named_but_not_blamed() -> None:
    log = shortened(recorded("frozen-3"), 1)
    assert reason(make_spec(hosts=FOUR), 1, log) == (
        f"rank 1 on {ONE} and rank 3 on {TWO} printed no error when a collective timed out after 10 s, but ranks 0, 2 "
        "did: the log does not show which rank caused it"
    )
    log = shortened(recorded("frozen-0"), 1, 2).replace("Process name: 1", "Process name: 3")
    assert reason(make_spec(hosts=FOUR), 1, log).startswith(f"ranks 0-1 on {ONE} and rank 2 on {TWO} printed no error")


def test_no_rank_is_blamed_if_all_reported() -> None:
    log = recorded("frozen-3")
    line = next(line for line in log.splitlines() if "Timed out waiting" in line)
    everybody = log.replace(line, f"{line}\n{line.replace('[2]', '[3]')}")
    assert reason(make_spec(hosts=FOUR), 1, everybody) == (
        "every rank printed an error when a collective timed out after 10 s: the log does not show which rank caused it"
    )


def test_rank_that_exited_by_itself_is_named_despite_timeouts() -> None:
    log = recorded("frozen-3").replace("Process name: 0\nExit code: 1\n", "Process name: 3\nExit code: 137\n")
    assert reason(make_spec(hosts=FOUR), 1, log) == f"rank 3 on {TWO} exited first, with status 137 (Killed)"


def test_files_of_an_earlier_attempt_are_no_evidence() -> None:
    earlier = recorded("frozen-0").replace("Process name: 1", "Process name: 2")
    assert reason(make_spec(hosts=FOUR), 1, earlier + recorded("frozen-3")).startswith(f"rank 3 on {TWO} {NO_ERROR}")
    assert reason(make_spec(hosts=FOUR), 7, f"{earlier}[supervisor] $ horovodrun\n") == (
        "the launcher exited with status 7"
    )


def test_program_output_is_no_evidence() -> None:
    output = "[0]<stdout>:Timed out waiting 5ms for recv operation to complete\nTimed out waiting 5ms for recv\n"
    assert reason(make_spec(hosts=FOUR), 1, output + recorded("killed-1")) == reason(
        make_spec(hosts=FOUR), 1, recorded("killed-1")
    )


@given(ranks=st.sets(st.integers(0, 300), min_size=1))
def test_listed_ranks_can_be_read_back(ranks: set[int]) -> None:
    spans = [span.split("-") for span in re.sub("^ranks? ", "", format_ranks(sorted(ranks))).split(", ")]
    assert [rank for span in spans for rank in range(int(span[0]), int(span[-1]) + 1)] == sorted(ranks)


def test_end_of_log_is_long_enough_for_output_of_all_ranks() -> None:
    assert log_bytes(4) > 4 * max(len(path.read_bytes()) for path in LOGS.iterdir())
    assert log_bytes(1) < log_bytes(64) < log_bytes(100_000) == 1 << 25


def test_first_failed_process_of_group_is_named() -> None:
    spec, other = make_spec(hosts=FOUR), HOSTS[1].name
    log = "[launcher] rank {} exited first: {}\n[3]<stderr>:ValueError: no such file\n"
    assert (
        reason(spec, 1, log.format(3, 2))
        == f"rank 3 on {other} exited first, with status 2; its last line: ValueError: no such file"
    )
    assert reason(spec, 1, log.format(2, -9)) == f"rank 2 on {other} exited first, with signal 9 (Killed)"
    assert reason(spec, 1, f"[launcher] {other} ended: 1\n") == f"the launcher on {other} exited with status 1"
    lost = reason(spec, 1, f"[launcher] {other} ended: 255\n")
    assert lost == f"{other} no longer responds; do: `fab replace worker2`, then `fab resume`"
    # A rank's output is never mistaken for the launcher's messages.
    assert reason(spec, 7, "[1]<stdout>:[launcher] rank 0 exited first: 3\n") == "the launcher exited with status 7"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (-11, "signal 11 (Segmentation fault)"),
        (139, "status 139 (Segmentation fault)"),
        (-40, "signal 40"),
        (255, "status 255"),
        (128, "status 128"),
        (1, "status 1"),
    ],
)
def test_signal_is_reported_with_its_name(status: int, text: str) -> None:
    assert describe_status(status) == text

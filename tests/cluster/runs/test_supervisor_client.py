"""The supervisor's answers: each status has its error, and secrets appear on no command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from agent.spec.submission import Origin, Submission
from cluster.errors import ConnectionFailedError, DeepcdkError, HeldNodesError, LiveRunError, RemoteError
from cluster.master_answers import AnswerError
from cluster.runs.supervisor_client import Supervisor
from cluster.ssh.master import Completed, Master
from tests.factories import make_spec, make_stack

STACK = make_stack()


class HoldingMaster(Master):
    """Answer a hold with these lines, and continue until its input ends."""

    def __init__(self, *lines: str, status: int = 0) -> None:
        self.said, self.status, self.where = lines, status, "ec2-user@198.18.1.2"
        self.commands: list[list[str]] = []
        self.held: list[bool] = []

    def lines(
        self,
        argv: Sequence[str],
        *,
        directory: str = "",
        silence_s: float = 60.0,
        stdin: bytes = b"",
        feed: Iterable[bytes] | None = None,
    ) -> Iterator[str]:
        self.commands.append(list(argv))
        self.held.append(True)
        yield from self.said
        if self.status:
            raise RemoteError("failed", status=self.status, output="")
        assert [*(feed or ())] == []
        self.held.append(False)


class AnsweringMaster(Master):
    """Answer each command with the next of these answers."""

    def __init__(self, *answers: Completed) -> None:
        self.answers, self.where = list(answers), "ec2-user@198.18.1.2"
        self.commands: list[list[str]] = []

    def run(self, argv: Any, *, directory: str = "", stdin: bytes = b"") -> Completed:
        self.commands.append(list(argv))
        return self.answers.pop(0)


def answer(document: object, status: int = 0, stderr: str = "") -> Completed:
    return Completed(status=status, stdout=json.dumps(document).encode(), stderr=stderr)


def test_live_run_is_reported_with_its_id() -> None:
    held = [{"run_id": "one", "hosts": ["deeplearning-worker1"]}, {"run_id": "two", "hosts": ["deeplearning-worker2"]}]
    caller = Supervisor(
        AnsweringMaster(answer({"live": "one", "state": "live", "held": held}, status=3)), STACK, "/mnt/efs/payloads/x"
    )
    with pytest.raises(LiveRunError) as caught:
        caller.start(Submission(spec=make_spec(run_id="three")))
    assert caught.value.what == (
        "run one is live on deeplearning-worker1; run two is live on deeplearning-worker2; "
        "too few nodes are free for another run"
    )
    assert "add nodes with `fab scale 4`" in caught.value.remedy


def test_nodes_are_reserved_within_the_block() -> None:
    master = HoldingMaster('{"alive": true}', '{"alive": true}', '{"holding": true}', '{"alive": true}')
    caller = Supervisor(master, STACK, "/x")
    with caller.hold("fab scale", {"deeplearning-worker2": "i-00000002"}):
        assert master.held == [True]
    with pytest.raises(KeyError), caller.hold("fab down", {}, every=True):
        raise KeyError
    assert master.held == [True, False, True, False]
    assert [command[3:] for command in master.commands] == [
        ["--root", STACK.runs_root, "hold", "fab scale", "deeplearning-worker2=i-00000002"],
        ["--root", STACK.runs_root, "hold", "--every", "fab down"],
    ]


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (
            {"hosts": ["deeplearning-worker2"], "task": "fab scale", "every": False},
            "is terminating deeplearning-worker2",
        ),
        ({"hosts": [], "task": "fab down", "every": True}, "`fab down` on another machine is terminating all nodes"),
        ({"hosts": [], "task": "fab train", "every": False}, "is changing the number of workers"),
    ],
)
def test_rejected_task_reports_task_of_other_laptop(held: dict[str, Any], says: str) -> None:
    refusal = {"live": "one", "state": "live", "held": [{"run_id": "one", **held}]}
    caller = Supervisor(AnsweringMaster(answer(refusal, status=3)), STACK, "/x")
    with pytest.raises(HeldNodesError, match=says) as caught:
        caller.start(Submission(spec=make_spec(run_id="three")))
    assert "wait until that task is done" in caught.value.remedy
    with (
        pytest.raises(HeldNodesError, match=says),
        Supervisor(HoldingMaster(json.dumps(refusal), status=3), STACK, "/x").hold("fab scale", {}),
    ):
        pytest.fail("it is not held")


def test_failed_reservation_names_run_and_invalid_answers_are_reported() -> None:
    held = [{"run_id": "one", "hosts": ["deeplearning-worker1"]}]
    refusing = HoldingMaster(json.dumps({"live": "one", "state": "live", "held": held}), status=3)
    with pytest.raises(LiveRunError, match="run one is live"), Supervisor(refusing, STACK, "/x").hold("fab scale", {}):
        pytest.fail("it is not held")
    odd = HoldingMaster('{"holding": "\x1b[2J"}')
    with pytest.raises(AnswerError, match="hold"), Supervisor(odd, STACK, "/x").hold("fab scale", {}):
        pytest.fail("it is not held")


def test_failed_reservation_reports_what_the_master_was_doing() -> None:
    failing = Supervisor(HoldingMaster('{"alive": true}', status=1), STACK, "/x")
    with pytest.raises(RemoteError, match="reserving the nodes failed on the master"), failing.hold("fab scale", {}):
        pytest.fail("it is not held")


def test_queued_run_is_reported_as_earlier() -> None:
    caller = Supervisor(AnsweringMaster(answer({"live": "one", "state": "queued", "held": []}, status=3)), STACK, "/x")
    with pytest.raises(LiveRunError, match="run one is queued") as caught:
        caller.runs()
    assert "--queue" in caught.value.remedy


@pytest.mark.parametrize("queue", [False, True])
def test_run_is_queued_only_on_request(queue: bool) -> None:
    submission = Submission(spec=make_spec(run_id="one"))
    for verb in ("start", "resume"):
        hosts = ["deeplearning-worker3"]
        master = AnsweringMaster(answer({"run_id": "one", "position": 2, "hosts": hosts, "checkpoints": []}))
        caller = Supervisor(master, STACK, "/x")
        told = caller.start(submission, queue=queue) if verb == "start" else caller.resume(submission, queue=queue)
        assert (told.position, told.placed(submission.spec)) == (2, "8 ranks on deeplearning-worker3")
        assert master.commands[0][-1 - queue :] == [verb, *(["--queue"] if queue else [])]


def test_unknown_run_is_reported_with_the_supervisors_message() -> None:
    caller = Supervisor(AnsweringMaster(answer(None, 4, "unknown run two; the latest runs: none\n")), STACK, "/x")
    with pytest.raises(DeepcdkError, match="unknown run two"):
        caller.status("two")


def test_supervisor_that_fails_or_gives_an_invalid_answer_is_reported() -> None:
    nonsense = Completed(status=0, stdout=b"Welcome", stderr="")
    caller = Supervisor(AnsweringMaster(answer(None, 1, "disk full"), nonsense), STACK, "/x")
    with pytest.raises(RemoteError, match="disk full"):
        caller.runs()
    with pytest.raises(AnswerError, match="it is not JSON"):
        caller.runs()


def test_master_reports_nodes_of_runs_and_queue() -> None:
    live = [{"run_id": "one", "hosts": ["deeplearning-worker1", "deeplearning-worker2"]}]
    caller = Supervisor(AnsweringMaster(answer({"live": live, "queued": ["two"]})), STACK, "/x")
    occupied = caller.occupancy()
    assert (occupied.live, occupied.queued, occupied.taken) == (("one",), ("two",), 2)
    assert [occupied.run_on(f"deeplearning-worker{index}") for index in (2, 3)] == ["one", ""]


SPEC = make_spec(run_id="one", secrets=("TOKEN",))


def test_secrets_reach_the_master_before_the_run_and_on_no_command_line() -> None:
    master = AnsweringMaster(answer(None), answer({"run_id": "one", "position": None, "hosts": []}))
    Supervisor(master, STACK, "/x").start(Submission(spec=SPEC), {"TOKEN": "swordfish"})
    assert [command[2:4] for command in master.commands] == [
        ["agent.remote.secret_files", "keep"],
        ["agent.supervisor.cli", "--root"],
    ]
    assert "swordfish" not in str(master.commands)


def test_run_that_does_not_start_leaves_no_secrets_behind() -> None:
    master = AnsweringMaster(answer(None), answer({"live": "other", "state": "live", "held": []}, 3), answer(None))
    with pytest.raises(LiveRunError):
        Supervisor(master, STACK, "/x").start(Submission(spec=SPEC), {"TOKEN": "swordfish"})
    assert master.commands[-1][2:] == ["agent.remote.secret_files", "drop", "one"]


def test_error_of_a_start_is_raised_even_if_secrets_cannot_be_removed() -> None:
    class LostMaster(AnsweringMaster):
        def run(self, argv: Any, *, directory: str = "", stdin: bytes = b"") -> Completed:
            if not self.answers:
                raise ConnectionFailedError("the master does not answer")
            return super().run(argv, directory=directory, stdin=stdin)

    master = LostMaster(answer(None), answer({"live": "other", "state": "live", "held": []}, 3))
    with pytest.raises(LiveRunError):
        Supervisor(master, STACK, "/x").start(Submission(spec=SPEC), {"TOKEN": "swordfish"})


def test_secrets_of_all_runs_of_a_sweep_are_sent_in_one_command() -> None:
    master, specs = AnsweringMaster(answer(None), answer({"run_ids": ["one", "two"]})), (SPEC, make_spec(run_id="two"))
    runs = [(spec, dict[str, Any]()) for spec in specs]
    Supervisor(master, STACK, "/x").enqueue(Origin(), runs, {"TOKEN": "swordfish"})
    assert [command[2:] for command in master.commands] == [
        ["agent.remote.secret_files", "keep", "one", "two"],
        ["agent.supervisor.cli", "--root", STACK.runs_root, "enqueue"],
    ]


def test_stop_command_has_run_and_grace_time() -> None:
    master = AnsweringMaster(answer({"run_id": "one", "state": "stopped", "was_live": True}))
    Supervisor(master, STACK, "/x").stop("one", 60)
    assert master.commands[0][-4:] == ["stop", "one", "--grace", "60"]

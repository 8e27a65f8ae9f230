"""Facts about the supervisor's answers: each status has its error, and secrets show on no command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.spec.provenance import Submission
from cluster.answers import AnswerError
from cluster.errors import DeepcdkError, LiveRunError, RemoteError
from cluster.runs.supervisor import Supervisor, supervisor_command
from cluster.ssh.master import Completed, Master
from tests.factories import make_spec, make_stack

STACK = make_stack()


class AnsweringMaster(Master):
    """Answer each command with the next of these."""

    def __init__(self, *answers: Completed) -> None:
        self.answers, self.where = list(answers), "ec2-user@198.18.1.2"
        self.commands: list[list[str]] = []

    def run(self, argv: Any, *, directory: str = "", stdin: bytes = b"") -> Completed:
        self.commands.append(list(argv))
        return self.answers.pop(0)


def answer(document: object, status: int = 0, stderr: str = "") -> Completed:
    return Completed(status=status, stdout=json.dumps(document).encode(), stderr=stderr)


def test_a_live_run_is_told_by_its_id() -> None:
    caller = Supervisor(
        AnsweringMaster(answer({"live": "one", "state": "live"}, status=3)), STACK, "/mnt/efs/payloads/x"
    )
    with pytest.raises(LiveRunError, match="run one is live"):
        caller.live()


def test_a_waiting_run_is_told_as_one_that_goes_first() -> None:
    caller = Supervisor(AnsweringMaster(answer({"live": "one", "state": "queued"}, status=3)), STACK, "/x")
    with pytest.raises(LiveRunError, match="run one waits in the queue") as caught:
        caller.runs()
    assert "--queue" in caught.value.remedy


@pytest.mark.parametrize("queue", [False, True])
def test_a_run_waits_only_where_it_is_asked_for(queue: bool) -> None:
    submission = Submission(spec=make_spec(run_id="one"))
    for verb in ("start", "resume"):
        master = AnsweringMaster(answer({"run_id": "one", "position": 2, "checkpoints": []}))
        caller = Supervisor(master, STACK, "/x")
        told = (
            caller.start(submission, queue=queue)
            if verb == "start"
            else caller.resume(submission, queue=queue)["position"]
        )
        assert told == 2
        assert master.commands[0][-1 - queue :] == [verb, *(["--queue"] if queue else [])]


def test_an_unknown_run_is_told_in_the_supervisors_words() -> None:
    caller = Supervisor(AnsweringMaster(answer(None, 4, "no run two under /mnt/efs/runs\n")), STACK, "/x")
    with pytest.raises(DeepcdkError, match="no run two"):
        caller.status("two")


def test_a_supervisor_that_fails_or_answers_nonsense_is_told() -> None:
    nonsense = Completed(status=0, stdout=b"Welcome", stderr="")
    caller = Supervisor(AnsweringMaster(answer(None, 1, "disk full"), nonsense), STACK, "/x")
    with pytest.raises(RemoteError, match="disk full"):
        caller.runs()
    with pytest.raises(AnswerError, match="it is no JSON"):
        caller.runs()


def test_a_run_that_has_ended_and_still_clears_its_nodes_is_not_live() -> None:
    states = (answer(None), answer({"run_id": "one", "state": "running"}), answer({"run_id": "one", "state": "failed"}))
    caller = Supervisor(AnsweringMaster(*states), STACK, "/x")
    assert [caller.live() for _ in states] == ["", "one", ""]


SPEC = make_spec(run_id="one", secrets=("TOKEN",))


def test_secrets_reach_the_master_before_the_run_and_on_no_command_line() -> None:
    master = AnsweringMaster(answer(None), answer({"run_id": "one", "position": None}))
    Supervisor(master, STACK, "/x").start(Submission(spec=SPEC), {"TOKEN": "swordfish"})
    assert [command[2:4] for command in master.commands] == [
        ["agent.remote.secret_files", "keep"],
        ["agent.supervisor.cli", "--root"],
    ]
    assert "swordfish" not in str(master.commands)


def test_a_run_that_does_not_start_leaves_no_secrets_behind() -> None:
    master = AnsweringMaster(answer(None), answer({"live": "other", "state": "running"}, 3), answer(None))
    with pytest.raises(LiveRunError):
        Supervisor(master, STACK, "/x").start(Submission(spec=SPEC), {"TOKEN": "swordfish"})
    assert master.commands[-1][2:] == ["agent.remote.secret_files", "drop", "one"]


def test_stopping_names_the_run_and_the_grace() -> None:
    master = AnsweringMaster(answer({"run_id": "one", "state": "stopped", "was_live": True}))
    Supervisor(master, STACK, "/x").stop("one", 60)
    assert master.commands[0][-4:] == ["stop", "one", "--grace", "60"]


def test_the_supervisor_is_called_without_a_shell_word_of_its_own() -> None:
    assert supervisor_command(STACK, "status", "--live") == [
        "/opt/deepcdk/bin/python3", "-m", "agent.supervisor.cli", "--root", "/mnt/efs/runs", "status", "--live",
    ]  # fmt: skip

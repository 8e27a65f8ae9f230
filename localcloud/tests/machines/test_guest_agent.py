"""Commands in a machine, whose agent is a thread here."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from localcloud.machines.guest_agent import Done, execute
from localcloud.machines.json_socket import NoAnswerError
from machines.peer import Answer, peer


def synchronized(request: dict[str, Any]) -> list[Any]:
    """Answer a client that has left, and then this one."""
    return [{"return": {"pid": 7}}, {"return": request["arguments"]["id"]}]


def answers(ended: dict[str, Any]) -> list[Answer]:
    return [synchronized, [{"return": {"pid": 12}}], [{"return": {"exited": False}}], [{"return": ended}]]


def test_a_command_is_waited_for_and_its_output_decoded(tmp_path: Path) -> None:
    output = base64.b64encode(b"boot\n\xff").decode()
    with peer(tmp_path / "agent", answers({"exited": True, "exitcode": 3, "out-data": output})) as requests:
        assert execute(tmp_path / "agent", ["cat", "/root/boots"]) == Done(
            exit_code=3, output=b"boot\n\xff", errors=b""
        )
    assert [request["execute"] for request in requests] == [
        *("guest-sync", "guest-exec", "guest-exec-status", "guest-exec-status")
    ]
    assert requests[1]["arguments"] == {"path": "cat", "arg": ["/root/boots"], "capture-output": True}
    assert requests[2]["arguments"] == {"pid": 12}


def test_a_command_that_a_signal_ended_has_a_shells_exit_code(tmp_path: Path) -> None:
    errors = base64.b64encode(b"killed").decode()
    with peer(tmp_path / "agent", answers({"exited": True, "signal": 9, "err-data": errors})):
        assert execute(tmp_path / "agent", ["sleep", "9"]) == Done(exit_code=137, output=b"", errors=b"killed")


def test_an_agent_that_is_not_up_yet_is_an_error(tmp_path: Path) -> None:
    with peer(tmp_path / "agent", [[]]), pytest.raises(NoAnswerError, match="still booting"):
        execute(tmp_path / "agent", ["true"], answer_s=0.05)

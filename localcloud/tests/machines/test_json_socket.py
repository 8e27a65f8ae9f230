"""Requests to a machine over a socket, answered here by a thread in QEMU's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localcloud.machines.json_socket import JsonSocket, NoAnswerError, RefusedError
from machines.peer import peer

GREETING: dict[str, Any] = {"QMP": {"version": {}, "capabilities": []}}


def test_an_answer_is_found_behind_a_greeting_and_events(tmp_path: Path) -> None:
    event = {"event": "POWERDOWN", "timestamp": {"seconds": 1}}
    path = tmp_path / "socket"
    with (
        peer(path, [[GREETING, event, {"return": {"status": "running"}}]]) as requests,
        JsonSocket(path, 5) as monitor,
    ):
        assert monitor.request("query-status", deep=True) == {"status": "running"}
    assert requests == [{"execute": "query-status", "arguments": {"deep": True}}]


def test_an_error_is_raised_with_its_words(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    refusal = {"error": {"class": "GenericError", "desc": "no such program"}}
    with (
        peer(path, [[refusal]]),
        JsonSocket(path, 5) as agent,
        pytest.raises(RefusedError, match="guest-exec: no such program"),
    ):
        agent.request("guest-exec", path="nothing")


@pytest.mark.parametrize("answer", [b"", b"nonsense\n"])
def test_a_peer_that_leaves_or_speaks_nonsense_is_one_that_does_not_answer(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "socket"
    with peer(path, [answer]), JsonSocket(path, 5) as agent, pytest.raises(NoAnswerError, match="still booting"):
        agent.request("guest-ping")


def test_a_peer_that_says_nothing_is_not_waited_for_without_end(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with peer(path, [[]]), JsonSocket(path, 0.05) as agent, pytest.raises(NoAnswerError, match="timed out"):
        agent.request("guest-ping")


def test_where_there_is_no_machine_there_is_no_socket(tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match="No such file"):
        JsonSocket(tmp_path / "socket", 5)

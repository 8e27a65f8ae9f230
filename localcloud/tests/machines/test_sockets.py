"""A machine's monitor and agent. Both are simulated by a thread."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from localcloud.machines.sockets import NoAnswerError, RefusedError, connected, execute, power_down

Answer = Sequence[Any] | bytes | Callable[[dict[str, Any]], Sequence[Any]]
"""The answer to a request: messages, bytes before the connection is closed, or a function of the request."""


@contextlib.contextmanager
def peer(path: Path, answers: Sequence[Answer]) -> Iterator[list[dict[str, Any]]]:
    """Answer the requests of one client in order; yield the list of received requests."""
    requests: list[dict[str, Any]] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)

    def serve() -> None:
        with contextlib.suppress(OSError, ValueError):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                for answer in answers:
                    requests.append(json.loads(lines.readline()))
                    if isinstance(answer, bytes):
                        connection.sendall(answer)
                        return
                    messages = answer(requests[-1]) if callable(answer) else answer
                    connection.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
                lines.readline()  # until the client disconnects

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield requests
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_power_button_is_pressed_after_monitor_is_ready(tmp_path: Path) -> None:
    event = {"event": "POWERDOWN", "timestamp": {"seconds": 1}}
    with peer(tmp_path / "monitor", [[{"QMP": {}}, {"return": {}}], [event, {"return": {}}]]) as requests:
        power_down(tmp_path / "monitor")
    assert requests == [{"execute": "qmp_capabilities"}, {"execute": "system_powerdown"}]


def test_error_contains_description(tmp_path: Path) -> None:
    refusal = {"error": {"class": "GenericError", "desc": "no such program"}}
    with (
        peer(tmp_path / "agent", [[refusal]]) as requests,
        connected(tmp_path / "agent", 5) as agent,
        pytest.raises(RefusedError, match="the machine rejected guest-exec: no such program"),
    ):
        agent.request("guest-exec", path="nothing")
    assert requests == [{"execute": "guest-exec", "arguments": {"path": "nothing"}}]


@pytest.mark.parametrize(("answer", "why"), [(b"", "was closed"), (b"nonsense\n", "still booting"), ([], "timed out")])
def test_disconnected_garbled_or_silent_machine_is_no_answer(tmp_path: Path, answer: Answer, why: str) -> None:
    with peer(tmp_path / "agent", [answer]), pytest.raises(NoAnswerError, match=why):
        execute(tmp_path / "agent", ["true"], answer_s=0.05)


def test_power_button_of_missing_machine_fails(tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match="No such file"):
        power_down(tmp_path / "monitor")


def synchronized(request: dict[str, Any]) -> list[Any]:
    """Return an answer to a client that has disconnected, followed by the answer to this one."""
    return [{"return": {"pid": 7}}, {"return": request["arguments"]["id"]}]


def answers(ended: dict[str, Any]) -> list[Answer]:
    return [synchronized, [{"return": {"pid": 12}}], [{"return": {"exited": False}}], [{"return": ended}]]


def test_command_is_waited_for_and_its_output_decoded(tmp_path: Path) -> None:
    output = base64.b64encode(b"boot\n\xff").decode()
    with peer(tmp_path / "agent", answers({"exited": True, "exitcode": 3, "out-data": output})) as requests:
        done = execute(tmp_path / "agent", ["cat", "/root/boots"])
    assert (done.returncode, done.stdout, done.stderr) == (3, b"boot\n\xff", b"")
    assert [request["execute"] for request in requests] == [
        *("guest-sync", "guest-exec", "guest-exec-status", "guest-exec-status")
    ]
    assert requests[1]["arguments"] == {"path": "cat", "arg": ["/root/boots"], "capture-output": True}
    assert requests[2]["arguments"] == {"pid": 12}


def test_command_killed_by_signal_has_exit_code_of_shell(tmp_path: Path) -> None:
    errors = base64.b64encode(b"killed").decode()
    with peer(tmp_path / "agent", answers({"exited": True, "signal": 9, "err-data": errors})):
        done = execute(tmp_path / "agent", ["sleep", "9"])
    assert (done.returncode, done.stdout, done.stderr) == (137, b"", b"killed")

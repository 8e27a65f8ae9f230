"""Facts about whether a host is there: one that refuses is, one that drops packets or has no route is not."""

from __future__ import annotations

import errno
import socket
from typing import Any, NoReturn

import pytest

from agent.remote.command import answers
from tests.factories import make_node

HERE = make_node(1, address="127.0.0.1")


def test_a_host_that_listens_answers_and_so_does_one_that_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert answers(HERE, port)
    assert answers(HERE, port)


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (TimeoutError("timed out"), False),
        (OSError(errno.EHOSTUNREACH, "No route to host"), False),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), True),
    ],
)
def test_silence_is_no_answer_and_an_error_of_the_host_is(
    error: OSError, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def connect(*words: Any) -> NoReturn:
        asked.append(words)
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    assert answers(make_node(1)) is found
    assert asked == [((make_node(1).address, 22), 3.0)]

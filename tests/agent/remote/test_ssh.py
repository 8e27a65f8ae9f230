"""Whether a host is reachable. It is if it refuses connections. It is not if it drops packets or has no route."""

from __future__ import annotations

import errno
import socket
import sys
import time
import tracemalloc
from typing import Any, NoReturn

import pytest

from agent.remote.ssh import MAX_OUTPUT, OWN_TREE, SSH, answers, execute, remote_command
from tests.factories import make_node

HERE = make_node(1, address="127.0.0.1")


def test_listening_and_refusing_hosts_are_reachable() -> None:
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
def test_timeout_is_no_answer_but_host_error_is(error: OSError, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def connect(*words: Any) -> NoReturn:
        asked.append(words)
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    assert answers(make_node(1)) is found
    assert asked == [((make_node(1).address, 22), 3.0)]


def test_command_logs_in_as_the_user_for_ranks_on_request_and_runs_in_its_own_tree_here() -> None:
    words = ["deeplearning-worker1", "cd '/mnt/a b' && exec ls '-l '"]
    host, argv = make_node(1), ["ls", "-l "]
    assert remote_command(host, "/mnt/a b", argv) == [SSH, *words]
    assert remote_command(host, "/mnt/a b", argv, as_rank=True) == [SSH, "-l", "deepcdk-rank", *words]
    assert remote_command(None, "/mnt/a b", argv) == ["/bin/sh", "-c", f"cd {OWN_TREE} && exec ls '-l '"]


def test_endless_output_uses_bounded_memory_and_stops_at_timeout() -> None:
    tracemalloc.start()
    try:
        done = execute(["cat", "/dev/zero"], 2.0)
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_OUTPUT
    finally:
        tracemalloc.stop()
    assert done.status == 124
    assert done.output.endswith("timed out after 2 s")
    assert len(done.output) <= MAX_OUTPUT + 100


@pytest.mark.parametrize(
    ("code", "status", "output"),
    [
        ("print('a'); import sys; sys.exit(3)", 3, "a\n"),
        ("import os; os.write(1, b'x\\n' * 20_000_000 + b'last'); os.write(2, b'!')", 0, "last!"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
    ],
)
def test_end_of_the_output_is_kept_with_the_status(code: str, status: int, output: str) -> None:
    done = execute([sys.executable, "-c", code], 60.0)
    assert (done.status, done.output[-len(output) :] if output else done.output) == (status, output)
    assert done.began <= done.ended


@pytest.mark.parametrize(
    "code", ["time.sleep(60)", "os.close(1); os.close(2); time.sleep(60)", "os.fork(); time.sleep(60)"]
)
def test_endless_command_is_killed_at_timeout(code: str) -> None:
    began = time.monotonic()
    done = execute([sys.executable, "-c", f"import os, time; print('began', flush=True); {code}"], 2.0)
    assert (done.status, done.output) == (124, "began\n\ntimed out after 2 s")
    assert time.monotonic() - began < 30


def test_missing_program_is_status_127() -> None:
    assert execute(["/absent/program"], 5.0).status == 127

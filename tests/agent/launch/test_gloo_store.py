"""The store at which Gloo ranks meet: Horovod's protocol, a memory limit, and its end together with the launcher."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.launch.gloo_store import MAX_VALUE, scope_sizes
from agent.launch.horovodrun import RemoteStore
from agent.spec.launchers import RANK_PARENT
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
MEMORY = 192 << 20
START = f"import sys, agent.launch.gloo_store as store; store.MEMORY = {MEMORY}; store.main(sys.argv[1:])"
HOSTS = "deeplearning-worker1:2,deeplearning-worker2:1"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """Start a store with little memory."""
    pipe = subprocess.PIPE
    command = ["env", "MALLOC_ARENA_MAX=1", sys.executable, "-S", "-c", START, "127.0.0.1", HOSTS]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as started:
        yield started
        started.kill()


@pytest.fixture
def port(process: subprocess.Popen[str]) -> int:
    line = process.stdout.readline()  # type: ignore[union-attr]  # a pipe
    assert line.startswith("deepcdk-gloo-store "), line
    return int(line.split()[1])


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def send(port: int, head: str, body: bytes = b"") -> bytes:
    """Send raw bytes; return the first line of the answer, or an empty one if the connection closes without it."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.connect()
        connection.sock.sendall(head.encode() + b"\r\n\r\n" + body)
        return connection.sock.makefile("rb").readline()


def test_values_have_a_scope_and_a_key(port: int) -> None:
    assert ask(port, "GET", "/global/0") == (404, b"")
    assert ask(port, "PUT", "/global/0", b"\0address") == (200, b"")
    assert ask(port, "GET", "/global/0") == (200, b"\0address")
    assert ask(port, "GET", "/local_deeplearning-worker1/0") == (404, b"")
    assert ask(port, "GET", "/global")[0] == 400


def test_values_of_scope_are_removed_after_all_ranks_left(port: int) -> None:
    for scope, ranks in scope_sizes(HOSTS).items():
        ask(port, "PUT", f"/{scope}/0", b"address")
        for rank in range(ranks):
            assert ask(port, "GET", f"/{scope}/0")[0] == 200
            assert ask(port, "DELETE", f"/{scope}/{rank}")[0] == 200
        assert ask(port, "GET", f"/{scope}/0")[0] == 404
    ask(port, "PUT", "/of-a-program/key", b"value")
    ask(port, "DELETE", "/of-a-program/key")
    assert ask(port, "GET", "/of-a-program/key")[0] == 404


def test_scope_sizes_match_horovod() -> None:
    assert scope_sizes(HOSTS) == {
        "global": 3,
        "local_deeplearning-worker1": 2,
        "local_deeplearning-worker2": 1,
        "cross_0": 2,
        "cross_1": 1,
    }


def test_store_stays_below_its_limit_for_any_values(process: subprocess.Popen[str], port: int) -> None:
    assert ask(port, "PUT", "/global/0", b"address") == (200, b"")
    lost, block = 0, bytes(MAX_VALUE)
    for number in range(2 * MEMORY // MAX_VALUE):
        try:
            ask(port, "PUT", f"/global/of-a-rank-{number}", block)
        except (OSError, http.client.HTTPException):
            lost += 1
    assert lost > 0
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    assert int(fields["VmPeak"].split()[0]) << 10 <= MEMORY
    assert ask(port, "GET", "/global/0") == (200, b"address")


@pytest.mark.parametrize("length", [str(MAX_VALUE + 1), "9" * 5000, "-1", "1e3", ""])
def test_value_without_a_valid_length_is_rejected(port: int, length: str) -> None:
    assert b" 413 " in send(port, f"PUT /global/0 HTTP/1.1\r\nContent-Length: {length}")
    assert ask(port, "GET", "/global/0")[0] == 404


@pytest.fixture
def waiting() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a store in which ranks wait for each other; it reports this immediately."""
    code = "import sys, agent.launch.gloo_store as store; store.REPORT_S = 0.5; store.main(sys.argv[1:])"
    command = [sys.executable, "-S", "-c", code, "127.0.0.1", HOSTS, "wait"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as started:
        yield started, int(started.stdout.readline().split()[1])  # type: ignore[union-attr]  # a pipe
        started.kill()


def test_ranks_wait_for_a_rank_that_joins_late_and_it_is_reported(waiting: Any) -> None:
    """Reported as horovod #1374."""
    process, port = waiting
    ask(port, "PUT", "/global/1", b"one")
    with ThreadPoolExecutor() as pool:
        late = pool.submit(ask, port, "GET", "/global/0")
        words = process.stdout.readline().split()
        assert (words[0], words[2:]) == ("deepcdk-gloo-store-missing", ["0", "2"])
        assert not late.done()
        assert ask(port, "GET", "/of-a-program/key")[0] == 404, "not Horovod's"
        ask(port, "PUT", "/global/0", b"zero")
        assert late.result(10) == (200, b"zero")


def test_ranks_that_wait_do_not_delay_the_others(waiting: Any) -> None:
    _, port = waiting
    with ThreadPoolExecutor() as pool:
        late = [pool.submit(ask, port, "GET", "/global/0") for _ in range(8)]
        time.sleep(0.5)
        began = time.monotonic()
        assert ask(port, "PUT", "/global/1", b"one")[0] == 200
        assert time.monotonic() - began < 1
        ask(port, "PUT", "/global/0", b"zero")
        assert [each.result(10) for each in late] == [(200, b"zero")] * 8


def test_rank_that_closes_its_connection_no_longer_waits(waiting: Any) -> None:
    process, port = waiting
    threads = Path(f"/proc/{process.pid}/task")
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", "/global/0")
        eventually(lambda: len(list(threads.iterdir())) == 3, 10)
    eventually(lambda: len(list(threads.iterdir())) == 2, 10)


def test_ranks_do_not_wait_for_a_rank_that_has_exited(waiting: Any) -> None:
    """Reported as horovod #1374."""
    _, port = waiting
    with ThreadPoolExecutor() as pool:
        never = pool.submit(ask, port, "GET", "/global/0")
        place = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
        environ = {**os.environ, **place, "HOROVOD_RANK": "0"}
        subprocess.run([sys.executable, *RANK_PARENT, "gloo", "true"], cwd=ROOT, env=environ, check=True)
        assert never.result(10) == (404, b"")


def test_launcher_reports_which_ranks_the_others_wait_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Reported as horovod #1374."""
    store = RemoteStore(HOSTS, "/")
    said = "deepcdk-gloo-store-missing 120 1 2 999999\ndeepcdk-gloo-store-missing x\nother\n"
    with subprocess.Popen(["printf", said], stdout=subprocess.PIPE) as store._ssh:
        store._forward()
    late = "rank 1 on deeplearning-worker1, rank 2 on deeplearning-worker2"
    said = capsys.readouterr().out
    assert said.startswith(f"[launcher] waited 120 s for {late} to call hvd.init(); their processes are alive. ")
    assert said.endswith("--env HOROVOD_GLOO_TIMEOUT_SECONDS=600\n") and said.count("\n") == 1


def test_store_exits_with_its_launcher(process: subprocess.Popen[str], port: int) -> None:
    process.stdin.close()  # type: ignore[union-attr]  # a pipe
    assert process.wait(10) == 0

"""Connections between ranks: the first one is detected, and connections of other processes are ignored."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.launch.rank_connections import LOOKS, LinkWatch, parse_connections
from agent.remote.processes import RunProcess
from agent.runs.run_directory import RunDirectory

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
NODE, OTHER, MASTER = "0201000A", "0202000A", "0203000A"  # 10.0.1.2, 10.0.2.2, 10.0.3.2
OTHER_MAPPED = f"0000000000000000FFFF0000{OTHER}"
PEER = "10.0.2.2"


def row(
    remote: str, *, local: str = NODE, ports: tuple[int, int] = (40000, 29500), state: str = "01", inode: int = 7
) -> str:
    ends = f"{local}:{ports[0]:04X} {remote}:{ports[1]:04X}"
    return f"   0: {ends} {state} 00000000:00000000 00:00000000 00000000 60900        0 {inode} 1 0 20 4 30 10 -1\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Create /proc with two processes: rank 0 with socket 7, and rank 1 with socket 8."""
    root = tmp_path / "proc"
    (root / "net").mkdir(parents=True)
    for pid, inode in ((100, 7), (101, 8)):
        (root / str(pid) / "fd").mkdir(parents=True)
        (root / str(pid) / "fd" / "3").symlink_to(f"socket:[{inode}]")
        (root / str(pid) / "maps").write_text("")
    write(root)
    return root


def write(proc: Path, *rows: str, sixth: str = "") -> None:
    (proc / "net" / "tcp").write_text(HEADER + "".join(rows))
    (proc / "net" / "tcp6").write_text(HEADER + sixth)


def ranks(*numbers: int) -> list[RunProcess]:
    return [RunProcess(pid=100 + number, parent=1, run_id="one", is_rank=True, rank=number) for number in numbers]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "one").mkdir()
    return RunDirectory(path=tmp_path / "one")


def reports(run: RunDirectory) -> set[str]:
    return {path.name for path in run.path.iterdir()}


@pytest.mark.parametrize(
    ("rows", "sixth", "is_linked"),
    [
        ([row(OTHER)], "", True),
        ([], row(OTHER_MAPPED, local=f"0000000000000000FFFF0000{NODE}"), True),  # like gRPC's sockets
        ([row(OTHER, state="06", inode=0)], "", True),  # already closed
        ([row(OTHER, inode=9)], "", False),  # of a process that is not a rank, such as Open MPI's daemon
        ([row(OTHER, state="02")], "", False),  # not answered yet
        ([row(MASTER)], "", False),  # Horovod's rendezvous or a tracking server
        ([row("0100007F", local="0100007F")], "", False),
        (["  nonsense\n", "x: y z\n"], "", False),
    ],
)
def test_ranks_of_several_nodes_are_linked_by_a_connection_to_another_node(
    proc: Path, run: RunDirectory, rows: list[str], sixth: str, is_linked: bool
) -> None:
    watch = LinkWatch(run, "n1", [PEER], proc=proc)
    write(proc, *rows, sixth=sixth)
    for _ in range(LOOKS):
        watch.look(ranks(0, 1))
    assert reports(run) == {"linked-1-n1" if is_linked else "apart-1-n1"}


def test_connection_closed_before_ranks_does_not_count(proc: Path, run: RunDirectory) -> None:
    write(proc, row(OTHER, state="06", inode=0))  # such as the allreduce of the pre-flight check
    watch = LinkWatch(run, "n1", [PEER], proc=proc)
    for _ in range(LOOKS):
        watch.look(ranks(0))
    assert reports(run) == {"apart-1-n1"}


def test_late_connection_is_reported_after_ranks_exit(proc: Path, run: RunDirectory) -> None:
    watch = LinkWatch(run, "n1", [PEER], proc=proc)
    for _ in range(LOOKS):
        watch.look(ranks(0))
    write(proc, row(OTHER, state="06", inode=0))
    watch.look([])
    assert reports(run) == {"apart-1-n1", "linked-1-n1"}


def test_nothing_is_reported_before_ranks_start(proc: Path, run: RunDirectory) -> None:
    watch = LinkWatch(run, "n1", [PEER], proc=proc)
    for _ in range(2 * LOOKS):
        watch.look([])
    assert reports(run) == set()


LOOP = "0100007F"
PAIR = [row(LOOP, local=LOOP, ports=(40000, 29500)), row(LOOP, local=LOOP, ports=(29500, 40000), inode=8)]
SHM = "7f00-7f01 {} 00000000 00:17 {} {}\n"


@pytest.mark.parametrize(
    ("rows", "maps", "is_linked"),
    [
        (PAIR, ("", ""), True),
        ([PAIR[0]], ("", ""), False),  # to a process that is not a rank
        ([PAIR[0], PAIR[1].replace(" 8 1 0", " 7 1 0")], ("", ""), False),  # a rank with itself
        ([], (SHM.format("rw-s", 5, "/dev/shm/vader_segment.n1"),) * 2, True),
        ([], (SHM.format("rw-s", 5, "/dev/shm/sem.a"), SHM.format("rw-s", 6, "/dev/shm/sem.b")), False),
        ([], (SHM.format("r--s", 5, "/mnt/efs/data/train.bin"),) * 2, False),
        ([], (SHM.format("rw-s", 5, "/mnt/efs/data/lock.mdb"),) * 2, False),
        ([], (SHM.format("rw-s", 5, "/dev/nvidia0"),) * 2, False),
        ([], (SHM.format("r-xp", 5, "/usr/lib/libc.so"),) * 2, False),
    ],
)
def test_ranks_of_one_node_are_linked_over_loopback_or_shared_memory(
    proc: Path, run: RunDirectory, rows: list[str], maps: tuple[str, str], is_linked: bool
) -> None:
    watch = LinkWatch(run, "n1", [], proc=proc)
    write(proc, *rows)
    for pid, text in zip((100, 101), maps, strict=True):
        (proc / str(pid) / "maps").write_text(text)
    for _ in range(LOOKS):
        watch.look(ranks(0, 1))
    assert reports(run) == {"linked-1-n1" if is_linked else "apart-1-n1"}


CLIENT = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(1); sys.stdin.read()"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_real_connections_between_two_processes_are_found(server: socket.socket, run: RunDirectory) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-uc", CLIENT, str(server.getsockname()[1])]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"1\n"
        accepted, _ = server.accept()
        own, other = (
            RunProcess(pid=pid, parent=1, run_id="one", is_rank=True, rank=rank)
            for rank, pid in enumerate((os.getpid(), client.pid))
        )
        watch = LinkWatch(run, "n1", [])
        watch.look([own])
        assert reports(run) == set()
        watch.look([own, other])
        assert reports(run) == {"linked-1-n1"}
        accepted.close()
        assert client.stdin is not None
        client.stdin.close()


@given(st.text(alphabet="0123456789ABCDEF: \n", max_size=200))
def test_malformed_tables_are_no_error(text: str) -> None:
    list(parse_connections(HEADER + text))

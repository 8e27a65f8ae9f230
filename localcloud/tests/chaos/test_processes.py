from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.chaos.processes import Process, processes_of, rank_of, ranks_of


def add(proc: Path, name: str, namespace: str, command: str = "", variables: str = "", pages: int = 1) -> None:
    path = proc / name
    (path / "ns").mkdir(parents=True)
    (path / "ns/pid").symlink_to(namespace)
    (path / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
    (path / "environ").write_bytes(variables.replace(" ", "\0").encode() + b"\0")
    (path / "statm").write_text(f"{9 * pages} {pages} 1 1 0 1 0\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    add(tmp_path, "self", "pid:[1]")
    add(tmp_path, "70", "pid:[2]", "init")
    add(tmp_path, "71", "pid:[2]", "sh -c train", "HOROVOD_RANK=1 RANK=9")
    add(tmp_path, "72", "pid:[2]", "python train.py", "HOROVOD_RANK=1", pages=50)
    add(tmp_path, "73", "pid:[2]", "python loader.py", "HOROVOD_RANK=1", pages=9)
    add(tmp_path, "74", "pid:[3]", "python other.py", "RANK=0")
    add(tmp_path, "75", "pid:[1]", "python machine.py", "RANK=0")
    (tmp_path / "76").mkdir()  # the process has just exited
    return tmp_path


def test_host_processes_share_namespace_of_first_process(proc: Path) -> None:
    assert [process.command for process in processes_of(70, proc)] == [
        *("init", "sh -c train", "python train.py", "python loader.py")
    ]


def test_rank_is_largest_process_with_its_variables(proc: Path) -> None:
    assert ranks_of(processes_of(70, proc)) == [
        Process(pid=72, command="python train.py", rank=1, resident_bytes=50 * 4096)
    ]


@pytest.mark.parametrize("init_pid", [75, 76, 99])
def test_processes_of_machine_belong_to_no_host(proc: Path, init_pid: int) -> None:
    assert processes_of(init_pid, proc) == []


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        (b"A=1\0HOROVOD_RANK=3\0RANK=4\0", 3),
        (b"RANK=4", 4),
        (b"OMPI_COMM_WORLD_RANK=0\0", 0),
        (b"LOCAL_RANK=4\0", None),
        (b"RANK=\0", None),
        (b"", None),
    ],
)
def test_rank_is_recognized_by_the_launchers_variables(variables: bytes, rank: int | None) -> None:
    assert rank_of(variables) == rank

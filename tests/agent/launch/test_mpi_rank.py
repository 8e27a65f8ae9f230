"""Facts about the parent of a rank that mpirun started: who the rank is, its lines, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.launch.mpi_rank import PIECE, Lines, main, pieces, write

PROJECT = Path(__file__).parents[3]
PLACE = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
WHO = "import os; print(*(os.environ['HOROVOD_' + n] for n in ('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE')))"


def rank(code: str, place: dict[str, str] = PLACE) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "agent.launch.mpi_rank", sys.executable, "-c", code],
        cwd=PROJECT,
        env={**os.environ, **place},
        capture_output=True,
        timeout=60,
    )


def test_the_rank_knows_who_it_is_and_each_stream_has_its_mark() -> None:
    done = rank(f"{WHO}\nimport sys; print('wrong', file=sys.stderr)")
    assert sorted(done.stderr.splitlines()) == [b"[2]<stderr>:wrong", b"[2]<stdout>:2 4 0 2"]
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_line_that_comes_in_parts_is_passed_on_whole() -> None:
    done = rank("import os\nfor part in (b'a', b' ', b'b\\n', b'c'): os.write(1, part)")
    assert done.stderr == b"[2]<stdout>:a b\n[2]<stdout>:c\n"


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_it_ends_as_the_rank_ends(code: str, status: int) -> None:
    assert rank(code).returncode == status


def test_a_signal_to_the_group_is_the_ranks_own_matter() -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(7)))\n"
        "os.killpg(0, signal.SIGTERM); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "agent.launch.mpi_rank", sys.executable, "-c", code],
        cwd=PROJECT,
        env={**os.environ, **PLACE},
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (7, b"[2]<stdout>:saved\n")


def test_a_rank_whose_reader_has_gone_is_ended() -> None:
    ours, theirs = os.pipe()
    code = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-m", "agent.launch.mpi_rank", sys.executable, "-c", code],
        cwd=PROJECT,
        env={**os.environ, **PLACE},
        stderr=theirs,
    ) as process:
        os.close(theirs)
        pid = int(os.read(ours, PIECE).split()[1])
        os.close(ours)
        assert process.wait(60) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_of_the_rank_that_lives_on_holds_nothing_up() -> None:
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    done = rank(code)
    os.kill(int(done.stderr.partition(b":")[2]), signal.SIGKILL)
    assert done.returncode == 0


def test_without_mpirun_it_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["true"]) == 2
    assert "for mpirun to start: OMPI_COMM_WORLD_RANK is not set" in capsys.readouterr().err


@given(st.lists(st.binary(max_size=20)))
def test_lines_are_the_same_however_they_are_cut(blocks: list[bytes]) -> None:
    lines, whole = Lines(b"[0]:"), Lines(b"[0]:")
    in_parts = [line for block in blocks for line in lines.feed(block)] + lines.end()
    assert in_parts == whole.feed(b"".join(blocks)) + whole.end()
    assert all(line.startswith(b"[0]:") and line.endswith(b"\n") and line.count(b"\n") == 1 for line in in_parts)


@given(st.lists(st.integers(1, 2 * PIECE).map(lambda size: b"x" * (size - 1) + b"\n"), max_size=20))
def test_a_piece_holds_whole_lines_and_no_more_than_is_read_at_once(lines: list[bytes]) -> None:
    found = pieces(lines)
    assert b"".join(found) == b"".join(lines)
    assert all(len(piece) <= PIECE or piece.count(b"\n") == 1 for piece in found)


def test_whoever_reads_a_piece_at_once_gets_whole_lines() -> None:
    lines = [b"%d:" % number + b"x" * (number * 37 % 900) + b"\n" for number in range(400)]
    ours, theirs = os.pipe()

    def tell() -> None:
        write(theirs, lines)
        os.close(theirs)

    thread = threading.Thread(target=tell)
    thread.start()
    read = list(iter(lambda: os.read(ours, PIECE), b""))
    thread.join()
    os.close(ours)
    assert b"".join(read) == b"".join(lines)
    assert all(block.endswith(b"\n") for block in read)

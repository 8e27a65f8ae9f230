"""The parent of a rank: the rank's identity, its lines, its signals and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.output_lines import PIECE
from agent.launch.rank_parent import main, parse_end

PROJECT = Path(__file__).parents[3]
PARENT = (sys.executable, "-m", "agent.launch.rank_parent")
PLACE = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
WHO = "import os; print(*(os.environ['HOROVOD_' + n] for n in ('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE')))"


def rank(code: str, place: dict[str, str] = PLACE) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PARENT, "mpi", sys.executable, "-c", code],
        cwd=PROJECT,
        env={**os.environ, **place},
        capture_output=True,
        timeout=60,
    )


def test_rank_has_its_number_and_streams_are_labeled() -> None:
    done = rank(f"{WHO}\nimport sys; print('wrong', file=sys.stderr)")
    assert sorted(done.stderr.splitlines()) == [b"[2]<stderr>:wrong", b"[2]<stdout>:2 4 0 2"]
    assert (done.returncode, done.stdout) == (0, b"")


def test_line_in_parts_is_forwarded_whole() -> None:
    done = rank("import os\nfor part in (b'a', b' ', b'b\\n', b'c'): os.write(1, part)")
    assert done.stderr == b"[2]<stdout>:a b\n[2]<stdout>:c\n"


def test_rank_is_terminated_when_its_reader_has_exited() -> None:
    ours, theirs = os.pipe()
    code = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen(
        [*PARENT, "mpi", sys.executable, "-c", code],
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


SAVES = """\
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(7)))
"""


def test_signal_of_mpirun_to_the_group_reaches_the_rank_once() -> None:
    with subprocess.Popen(
        [*PARENT, "mpi", sys.executable, "-c", f"{SAVES}print('ready', flush=True)\nsignal.pause()"],
        cwd=PROJECT,
        env={**os.environ, **PLACE},
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None and process.stderr.readline() == b"[2]<stdout>:ready\n"
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (7, b"[2]<stdout>:saved\n")


def start_in_group(code: str) -> subprocess.Popen[bytes]:
    command = [*PARENT, "group", sys.executable, "-c", code]
    return subprocess.Popen(
        command, cwd=PROJECT, env={**os.environ, "RANK": "2"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize(("end", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_in_process_group_exit_is_reported_and_repeated_by_parent(end: str, status: int) -> None:
    with start_in_group(f"print('told', flush=True)\n{end}") as parent:
        output, _ = parent.communicate(timeout=60)
    lines = output.splitlines(keepends=True)
    assert (lines[0], parse_end(lines[-1]), parent.returncode) == (b"[2]<stdout>:told\n", (2, status), status)


@pytest.mark.parametrize(("end", "status"), [("exit 3", 3), ("kill -9 $$", 128 + 9)])
def test_over_gloo_status_and_output_are_unchanged(end: str, status: int) -> None:
    """If a signal kills a command, ssh reports only status 255."""
    words = [*PARENT, "gloo", "/bin/sh", "-c", f"printf told; {end}"]
    done = subprocess.run(words, cwd=PROJECT, env={**os.environ, "HOROVOD_RANK": "2"}, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"told", b"")


def test_signal_of_torchrun_is_sent_on_to_the_rank() -> None:
    with start_in_group(f"{SAVES}print('ready', flush=True)\nsignal.pause()") as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"[2]<stdout>:ready\n"
        parent.send_signal(signal.SIGTERM)
        output, _ = parent.communicate(timeout=60)
    assert (output.splitlines()[0], parent.returncode) == (b"[2]<stdout>:saved", 7)


def test_output_of_a_rank_is_not_mistaken_for_its_exit_report() -> None:
    assert parse_end(b"[2]<stdout>:[launcher] rank 2 ended: 0\n") is None


@pytest.mark.parametrize(("launcher", "lacks"), [("mpi", "OMPI_COMM_WORLD_RANK"), ("group", "RANK")])
def test_missing_launcher_variables_are_reported(
    launcher: str, lacks: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(lacks, raising=False)
    assert main([launcher, "true"]) == 2
    assert f"must be started by a launcher: {lacks} is not set" in capsys.readouterr().err

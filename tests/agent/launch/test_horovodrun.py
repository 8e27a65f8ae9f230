"""Horovod's launcher without TensorFlow, over Gloo and over MPI, by hand and in a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.horovodrun import cache_folder
from agent.spec.launchers import RANK_PARENT
from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE
from tests.factories import make_program_spec
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
CODE = (
    "import os, sys\n"
    "say = lambda *names: [os.environ['HOROVOD_' + name] for name in names]\n"
    "print('rank', *say('RANK', 'SIZE', 'CONTROLLER', 'CPU_OPERATIONS'))\n"
    "sys.exit({})"
)


def launch(status: int, controller: str = "--gloo") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-v", "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", controller]
    rank = ["env", "-C", str(ROOT), sys.executable, "-c", CODE.format(status)]
    return subprocess.run([*command, *rank], capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_launchers_cache_host_checks_in_separate_folders() -> None:
    one, two = (cache_folder("/home/me/.horovod", ["-np", "2", "-H", hosts, "--gloo"]) for hosts in ("a:1,b:1", "c:2"))
    assert one != two
    assert {Path(folder).parent for folder in (one, two)} == {Path("/home/me/.horovod")}
    assert one == cache_folder("/home/me/.horovod", ["-H", "a:1,b:1"])


@pytest.mark.horovod
def test_horovodrun_starts_ranks_without_importing_tensorflow() -> None:
    failed = launch(3)
    assert (failed.returncode, "Traceback (most recent" in failed.stderr) == (1, False)
    assert re.search(r"The first process to do so was:\nProcess name: [01]\nExit code: (3|-15|143)\n", failed.stderr)
    done = launch(0)  # A failing rank can terminate the other one before it prints its line.
    assert done.returncode == 0, done.stderr
    assert sorted(line.split(":", 1)[1] for line in done.stdout.splitlines() if "rank" in line) == [
        "rank 0 2 gloo gloo",
        "rank 1 2 gloo gloo",
    ]
    assert "import 'horovod.runner.launch'" in done.stderr
    assert "import 'tensorflow" not in done.stderr


@pytest.mark.horovod
def test_ranks_share_a_fork_server_and_end_when_the_launcher_is_killed(tmp_path: Path) -> None:
    code = f"{SPAWNER}\nimport time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)"
    rank = ["env", "-C", str(ROOT), sys.executable, "-c", code]
    words = [sys.executable, "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", "--gloo", *rank]
    output = tmp_path / "output"
    with output.open("w") as stream, subprocess.Popen(words, stdout=stream, cwd=ROOT) as launcher:
        try:
            eventually(lambda: len(re.findall(r">:pid \d+\n", output.read_text())) == 2)
        finally:
            launcher.kill()
    said = output.read_text()
    forked = re.findall(r"(\[\d\])<stdout>:above .*from multiprocessing.forkserver import main", said)
    assert set(forked) == {"[0]", "[1]"}
    pids = re.findall(r">:pid (\d+)\n", said)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.horovod
def test_long_temporary_directory_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / ("x" * 100)  # The path of a socket has at most 107 bytes.
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    done = launch(0)
    assert (done.returncode, "rank 1 2" in done.stdout) == (0, True), done.stderr


@pytest.mark.horovod
def test_over_mpi_horovodrun_executes_mpirun_of_its_environment() -> None:
    done = launch(3, "--mpi")
    assert done.returncode == 3, done.stderr
    assert "import 'multiprocessing.forkserver'" not in done.stderr, "it would import it"
    assert "import 'setuptools" not in done.stderr
    said = [line for line in done.stderr.splitlines() if re.match(r"\[\d\]<stdout>:rank", line)]
    assert sorted(said) == ["[0]<stdout>:rank 0 2 mpi mpi", "[1]<stdout>:rank 1 2 mpi mpi"]
    assert "import 'tensorflow" not in done.stderr


@pytest.mark.horovod
def test_over_mpi_command_without_directory_and_python_is_rejected() -> None:
    words = ["-np", "1", "-H", "localhost:1", "--mpi", "true"]
    done = subprocess.run(
        [sys.executable, "-m", "agent.launch.horovodrun", *words], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 1
    assert "`env -C DIRECTORY PYTHON ...`, not `true`" in done.stderr


SSH = f"""\
#!/bin/sh
echo "$@" >>"${{0%/*}}/called"
for word; do :; done
case $word in -*) exit 255 ;; esac
cd /
exec setsid sh -c "$(printf %s "$word" | sed 's#{NODE_PYTHON}#{sys.executable}#g')"
"""
"""Runs the command on this machine, in a separate session."""
LISTENING = """\
import glob, os
inodes = {line.split()[9] for line in open("/proc/net/tcp").readlines()[1:] if line.split()[3] == "0A"}
for process in glob.glob("/proc/[0-9]*"):
    try:
        held = {os.readlink(path) for path in glob.glob(f"{process}/fd/*")}
        words = open(f"{process}/cmdline").read().split(chr(0))
        is_of_run = f"DEEPCDK_RUNS={os.environ['DEEPCDK_RUNS']}" in open(f"{process}/environ").read().split(chr(0))
    except OSError:
        continue
    for module in ("agent.launch.horovodrun", "agent.launch.gloo_store"):
        if is_of_run and module in words and held & {f"socket:[{inode}]" for inode in inodes}:
            print("listens:", module)
print("at", os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"])
"""
SPAWNER = """\
import os
parent = os.getppid()
while parent > 1:
    stat = open(f"/proc/{parent}/stat").read().rpartition(")")[2].split()
    print("above", open(f"/proc/{parent}/cmdline").read().split(chr(0))[:4])
    parent = int(stat[1])
"""


@pytest.fixture
def run(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """Return the environment of a run's launcher (with a shell in place of SSH) and the log file of the SSH calls."""
    spec = make_program_spec(efs_mount=str(tmp_path))
    directory = Path(spec.run_directory)
    directory.mkdir(parents=True)
    (directory / "spec.json").write_text(spec.to_json())
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    marks = {RUN_VARIABLE: spec.run_id, RUNS_VARIABLE: spec.runs_root}
    return {**os.environ, **marks, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, tmp_path / "called"


def launch_in_run(environ: dict[str, str], flags: list[str], rank: list[str]) -> subprocess.CompletedProcess[str]:
    words = [*flags, "env", "-C", str(ROOT), *rank]
    return subprocess.run(
        [sys.executable, "-m", "agent.launch.horovodrun", *words],
        capture_output=True, text=True, cwd=ROOT, timeout=120, env=environ,
    )  # fmt: skip


@pytest.mark.horovod
@pytest.mark.parametrize("interfaces", [["--network-interfaces", "lo"], []])
def test_in_a_run_the_store_of_gloo_is_on_the_first_host_and_the_launcher_opens_no_port(
    run: tuple[dict[str, str], Path], interfaces: list[str]
) -> None:
    environ, called = run
    done = launch_in_run(
        environ, ["-np", "1", "-H", "localhost:1", "--gloo", *interfaces], [sys.executable, "-c", LISTENING]
    )
    assert done.returncode == 0, done.stderr
    said = [line.partition(">:")[2] for line in done.stdout.splitlines()]
    assert said == ["listens: agent.launch.gloo_store", "at 127.0.0.1"]
    assert "agent.launch.gloo_store 127.0.0.1 localhost:1" in called.read_text()


@pytest.mark.horovod
def test_in_a_run_mpirun_is_started_over_ssh(run: tuple[dict[str, str], Path]) -> None:
    environ, called = run
    flags = ["--runtime", sys.prefix, "-np", "1", "-H", "localhost:1", "--mpi"]
    done = launch_in_run(environ, flags, [sys.executable, "-c", SPAWNER])
    above = [line for line in done.stderr.splitlines() if "above" in line]
    at = next(number for number, line in enumerate(above) if "bin/mpirun" in line)
    assert "agent.launch.host_ranks" in above[at + 1], above
    assert called.read_text().count("localhost cd ") == 1, "mpirun itself starts the ranks of its host"
    assert done.returncode == 0, done.stderr


@pytest.mark.horovod
def test_endless_line_uses_bounded_memory(run: tuple[dict[str, str], Path]) -> None:
    code = "import sys; [sys.stdout.write('x' * (1 << 20)) for _ in range(8)]; sys.stdout.buffer.write(bytes([255]))"
    done = launch_in_run(run[0], ["-np", "1", "-H", "localhost:1", "--gloo"], [sys.executable, "-c", code])
    lines = done.stdout.splitlines()
    assert (done.returncode, max(map(len, lines)) <= (1 << 16) + len("[0]<stdout>:")) == (0, True)
    assert sum(line.count("x") for line in lines) == 8 << 20


LATE = """\
import os, sys, time
import horovod.tensorflow as hvd
if os.environ["HOROVOD_RANK"] == "0":
    time.sleep(8)
    if sys.argv[1:]:
        sys.exit()
hvd.init()
print("rank", hvd.rank(), "of", hvd.size())
"""


@pytest.mark.horovod
@pytest.mark.tensorflow
@pytest.mark.parametrize("exits", [False, True])
def test_ranks_wait_for_live_rank_beyond_timeout(run: tuple[dict[str, str], Path], exits: bool) -> None:
    """Reported as horovod #1374."""
    environ, _ = run
    environ |= {"HOROVOD_GLOO_TIMEOUT_SECONDS": "4", "PYTHONUNBUFFERED": "1"}
    rank = [sys.executable, *RANK_PARENT, "gloo", sys.executable, "-c", LATE, *(["exit"] if exits else [])]
    done = launch_in_run(environ, ["-np", "2", "-H", "localhost:2", "--gloo", "--network-interfaces", "lo"], rank)
    said = sorted(line.partition(">:")[2] for line in done.stdout.splitlines() if ">:rank " in line)
    assert (done.returncode == 0, said) == (not exits, [] if exits else ["rank 0 of 2", "rank 1 of 2"]), done.stderr
    assert ("Wait timeout after 4 seconds for key" in done.stderr) == exits

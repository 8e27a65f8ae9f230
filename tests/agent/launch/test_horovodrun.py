from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.horovodrun import cache_folder

ROOT = Path(__file__).parents[3]
CODE = (
    "import os, sys\n"
    "say = lambda *names: [os.environ['HOROVOD_' + name] for name in names]\n"
    "print('rank', *say('RANK', 'SIZE', 'CONTROLLER', 'CPU_OPERATIONS'))\n"
    "sys.exit({})"
)


def spec(status: int, controller: str = "--gloo") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-v", "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", controller]
    rank = ["env", "-C", str(ROOT), sys.executable, "-c", CODE.format(status)]
    return subprocess.run([*command, *rank], capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_launchers_of_other_hosts_keep_what_they_found_out_in_folders_of_their_own() -> None:
    one, two = (cache_folder("/home/me/.horovod", ["-np", "2", "-H", hosts, "--gloo"]) for hosts in ("a:1,b:1", "c:2"))
    assert one != two
    assert {Path(folder).parent for folder in (one, two)} == {Path("/home/me/.horovod")}
    assert one == cache_folder("/home/me/.horovod", ["-H", "a:1,b:1"])


@pytest.mark.horovod
def test_it_starts_the_ranks_without_importing_tensorflow() -> None:
    done = spec(0)
    assert done.returncode == 0
    assert sorted(line.split(":", 1)[1] for line in done.stdout.splitlines() if "rank" in line) == [
        "rank 0 2 gloo gloo",
        "rank 1 2 gloo gloo",
    ]
    assert "import 'horovod.runner.launch'" in done.stderr
    assert "import 'tensorflow" not in done.stderr


@pytest.mark.horovod
def test_over_mpi_it_becomes_the_mpirun_beside_horovod() -> None:
    done = spec(0, "--mpi")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if re.match(r"\[\d\]<stdout>:rank", line)]
    assert sorted(said) == ["[0]<stdout>:rank 0 2 mpi mpi", "[1]<stdout>:rank 1 2 mpi mpi"]
    assert "import 'tensorflow" not in done.stderr


@pytest.mark.horovod
@pytest.mark.parametrize("controller", ["--gloo", "--mpi"])
def test_it_fails_when_a_rank_fails(controller: str) -> None:
    assert spec(3, controller).returncode != 0


@pytest.mark.horovod
def test_over_mpi_a_command_without_directory_and_python_is_refused() -> None:
    words = ["-np", "1", "-H", "localhost:1", "--mpi", "true"]
    done = subprocess.run(
        [sys.executable, "-m", "agent.launch.horovodrun", *words], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 1
    assert "`env -C DIRECTORY PYTHON ...`, not `true`" in done.stderr

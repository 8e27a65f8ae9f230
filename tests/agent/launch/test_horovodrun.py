"""Horovod's launcher without TensorFlow, over Gloo and over MPI."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.horovodrun import cache_folder, mpi_command, mpi_variables

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


def test_launchers_of_other_hosts_keep_what_they_found_out_in_folders_of_their_own() -> None:
    one, two = (cache_folder("/home/me/.horovod", ["-np", "2", "-H", hosts, "--gloo"]) for hosts in ("a:1,b:1", "c:2"))
    assert one != two
    assert {Path(folder).parent for folder in (one, two)} == {Path("/home/me/.horovod")}
    assert one == cache_folder("/home/me/.horovod", ["-H", "a:1,b:1"])


@pytest.mark.horovod
def test_it_starts_the_ranks_without_importing_tensorflow() -> None:
    done = launch(3)
    assert done.returncode != 0, "the ranks fail"
    assert sorted(line.split(":", 1)[1] for line in done.stdout.splitlines() if "rank" in line) == [
        "rank 0 2 gloo gloo",
        "rank 1 2 gloo gloo",
    ]
    assert "import 'horovod.runner.launch'" in done.stderr
    assert "import 'tensorflow" not in done.stderr


@pytest.mark.horovod
def test_over_mpi_it_becomes_the_mpirun_beside_horovod() -> None:
    done = launch(3, "--mpi")
    assert done.returncode == 3, done.stderr
    said = [line for line in done.stderr.splitlines() if re.match(r"\[\d\]<stdout>:rank", line)]
    assert sorted(said) == ["[0]<stdout>:rank 0 2 mpi mpi", "[1]<stdout>:rank 1 2 mpi mpi"]
    assert "import 'tensorflow" not in done.stderr


@pytest.mark.horovod
def test_over_mpi_a_command_without_directory_and_python_is_refused() -> None:
    words = ["-np", "1", "-H", "localhost:1", "--mpi", "true"]
    done = subprocess.run(
        [sys.executable, "-m", "agent.launch.horovodrun", *words], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 1
    assert "`env -C DIRECTORY PYTHON ...`, not `true`" in done.stderr


BASE = Path("/opt/deepcdk/runtime/ab")


def test_the_command_starts_each_rank_on_its_slot_and_shows_no_value() -> None:
    found = mpi_command(
        BASE,
        ranks=3,
        hosts="a:2,b:1",
        interfaces=["10.0.0.0/20"],
        exported=["HOME", "TOKEN"],
        rank=["python", "x"],
    )
    assert shlex.join(found) == (
        f"{BASE}/bin/mpirun --allow-run-as-root -np 3 -H a:2,b:1 --bind-to none --map-by slot --mca pml ob1"
        " --mca btl '^openib' --mca btl_tcp_if_include 10.0.0.0/20 -x HOME -x TOKEN python x"
    )


def test_open_mpi_gives_way_finds_its_daemon_and_detects_a_lost_host_after_a_minute() -> None:
    found = mpi_variables(BASE, 70, ["10.0.0.0/20", "lo"])
    assert found == {
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_plm_rsh_num_concurrent": "70",
        "OMPI_MCA_orte_launch_agent": f"{BASE}/bin/orted",
        "OMPI_MCA_oob_tcp_if_include": "10.0.0.0/20,lo",
        "OMPI_MCA_oob_tcp_keepalive_time": "30",
        "OMPI_MCA_oob_tcp_keepalive_intvl": "10",
        "OMPI_MCA_oob_tcp_keepalive_probes": "3",
    }
    assert "OMPI_MCA_oob_tcp_if_include" not in mpi_variables(BASE, 1, [])

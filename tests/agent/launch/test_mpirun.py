"""Facts about Open MPI under Horovod's launcher: where it lies, its command, and who a rank is."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from agent.launch.mpirun import CONTROLLER, command, placed, prefix, variables

BASE = Path("/opt/deepcdk/runtime/ab")


def test_open_mpi_lies_in_horovods_virtual_environment() -> None:
    assert prefix(BASE / "lib/python3.11/site-packages/horovod/__init__.py") == BASE


def test_the_command_starts_each_rank_on_its_slot_and_shows_no_value() -> None:
    found = command(
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


def test_without_interfaces_open_mpi_chooses() -> None:
    found = command(BASE, ranks=1, hosts="a:1", interfaces=[], exported=[], rank=["true"])
    assert "btl_tcp_if_include" not in found
    assert "OMPI_MCA_oob_tcp_if_include" not in variables(BASE, 1, [])


def test_waiting_ranks_give_way_and_the_master_alone_speaks_ssh() -> None:
    found = variables(BASE, 70, ["10.0.0.0/20", "lo"])
    assert found["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert found["OMPI_MCA_plm_rsh_no_tree_spawn"] == "1"
    assert found["OMPI_MCA_plm_rsh_num_concurrent"] == "70"
    assert found["OMPI_MCA_orte_launch_agent"] == f"{BASE}/bin/orted"
    assert found["OMPI_MCA_oob_tcp_if_include"] == "10.0.0.0/20,lo"


def test_a_host_that_is_gone_without_a_word_is_noticed_after_a_minute() -> None:
    found = variables(BASE, 2, [])
    idle, between, probes = (int(found[f"OMPI_MCA_oob_tcp_keepalive_{name}"]) for name in ("time", "intvl", "probes"))
    assert (idle, between, probes) == (30, 10, 3)
    assert idle + between * probes == 60


def test_horovod_meets_and_reduces_over_mpi() -> None:
    assert CONTROLLER == {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}


def test_a_rank_reads_its_place_as_horovodrun_would_say_it() -> None:
    said = {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }
    assert placed(said) == {
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
    }
    with pytest.raises(KeyError, match="OMPI_COMM_WORLD_RANK"):
        placed({})

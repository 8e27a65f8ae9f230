"""Horovod's launcher: its command line, its environment and its timeouts."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.launch import launcher_command
from agent.launch.launcher_command import (
    Interpreters,
    document,
    horovodrun,
    launcher_environment,
)
from agent.spec.horovod import Knobs
from agent.spec.nodes import RANK_USER
from tests.factories import make_node, make_program_spec, make_spec

PYTHON = "/opt/deepcdk/runtime/ab/bin/python"
MASTERS = "/opt/deepcdk/runtime/cd/bin/python"
PYTHONS = Interpreters(launcher=MASTERS, ranks=PYTHON, runtime="/opt/deepcdk/runtime/ab")


def test_horovodrun_gets_every_slot_of_every_host_in_order() -> None:
    assert shlex.join(horovodrun(make_spec(), PYTHONS)) == (
        f"{MASTERS} -m agent.launch.horovodrun -np 8"
        " -H deeplearning-worker1:4,deeplearning-worker2:4 --gloo --network-interfaces ens5 --start-timeout 70"
        " env -C /mnt/efs/payloads/aaaaaaaaaaaaaaaa"
        f" {PYTHON} -m agent.launch.rank_parent gloo"
        f" {PYTHON} -m agent.launch.rank /mnt/efs/runs/20261120-121314-digits-ab12"
    )


def test_over_mpi_ranks_use_network_of_all_nodes() -> None:
    command = shlex.join(horovodrun(make_spec(controller="mpi", network="10.0.0.0/23"), PYTHONS))
    assert command.startswith(f"{MASTERS} -m agent.launch.horovodrun --runtime /opt/deepcdk/runtime/ab -np 8 ")
    assert command.endswith(f" {PYTHON} -m agent.launch.rank /mnt/efs/runs/20261120-121314-digits-ab12")
    assert " --mpi --network-interfaces 10.0.0.0/23 --start-timeout 70 " in command
    assert "--gloo" not in command


def test_command_has_cycle_time_only_if_given() -> None:
    for spec in (make_program_spec(), make_spec()):
        assert "--cycle-time-ms" not in horovodrun(spec, PYTHONS)
    assert "--cycle-time-ms 2" in shlex.join(horovodrun(make_spec(knobs=Knobs(cycle_time_ms=2)), PYTHONS))


@settings(max_examples=20)
@given(
    words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1).map(tuple),
    value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=8).map(lambda t: f"secret{t}"),
)
def test_user_input_is_not_on_command_lines(words: tuple[str, ...], value: str) -> None:
    plain = make_program_spec()
    given_words = make_program_spec(command=("train.py", *words), environment=(("NAME", value),))
    assert horovodrun(given_words, PYTHONS) == horovodrun(plain, PYTHONS)
    assert launcher_environment(given_words, {}) == launcher_environment(plain, {})


def test_record_has_launcher_command_and_each_ranks_command() -> None:
    spec = make_program_spec(command=("train.py", "two words"), environment=(("NAME", "value"),), secrets=("TOKEN",))
    found = document(spec, PYTHON, horovodrun(spec, PYTHONS), launcher_environment(spec, {}))
    assert found["command"] == horovodrun(spec, PYTHONS)
    assert found["rank_command"] == [PYTHON, "train.py", "two words"]
    assert (found["rank_environment"], found["rank_secrets"]) == ({"NAME": "value"}, ["TOKEN"])
    assert json.loads(json.dumps(found)) == found


def test_ssh_of_agent_precedes_ssh_of_system_and_uses_user_of_ranks(tmp_path: Path) -> None:
    login = {"HOME": "/home/ec2-user", "USER": "ec2-user", "AWS_SECRET_ACCESS_KEY": "never"}
    environment = launcher_environment(make_spec(), login)
    assert "never" not in environment.values()
    path = environment["PATH"].split(":")
    assert Path(path[0]) == Path(launcher_command.__file__).parents[1] / "bin" / "as_rank"
    shutil.copytree(path[0], tmp_path / "as_rank")
    (tmp_path / "ssh").write_text("#!/bin/sh\nprintf '%s,' \"$@\"\n")
    (tmp_path / "ssh").chmod(0o755)
    words = ["ssh", "-o", "StrictHostKeyChecking=no", "deeplearning-worker1", "a  'b'"]
    done = subprocess.run(words, env={"PATH": f"{tmp_path}/as_rank"}, capture_output=True, text=True, check=True)
    assert done.stdout == ",".join(["-l", RANK_USER, *words[1:], ""])
    assert not any(each.startswith("/mnt/efs") for each in path), "every rank can write there"
    assert "/usr/bin" in path


@pytest.mark.parametrize(
    ("changes", "cycle"),
    [
        ({}, "2.2"),
        ({"controller": "mpi"}, "1"),
        ({"knobs": Knobs(cycle_time_ms=2)}, None),
        ({"knobs": Knobs(autotune=True)}, None),
        ({"environment": (("HOROVOD_AUTOTUNE", "1"),)}, None),
        ({"hosts": (make_node(1),)}, None),
        ({"hosts": (make_node(1, slots=2, kind="x86_64-sm90"),)}, None),
    ],
)
def test_program_on_cpus_gets_a_cycle_unless_the_user_chose_one(changes: dict[str, Any], cycle: str | None) -> None:
    values = {"hosts": (make_node(1, slots=2),), "controller": "gloo", **changes}
    assert launcher_environment(make_program_spec(**values), {}).get("HOROVOD_CYCLE_TIME") == cycle
    assert "HOROVOD_CYCLE_TIME" not in launcher_environment(make_spec(), {})

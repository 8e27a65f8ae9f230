"""Facts about the launch of a run: nodes, hosts, commands, environment, and the spec's way through JSON."""

from __future__ import annotations

import datetime
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.launch import (
    Launch,
    LaunchError,
    Node,
    choose_hosts,
    common_interface,
    gloo_timeout_s,
    horovodrun,
    launcher_environment,
    make_run_id,
    parse_nodes,
    start_timeout_s,
    workers,
)

NODES = """\
deeplearning-master 10.0.0.12 i-0aa 1 ens5 us-east-1a
deeplearning-worker10 10.0.1.20 i-0bb 1 ens5 us-east-1a
deeplearning-worker2 10.0.1.12 i-0cc 4 ens5 us-east-1a
deeplearning-worker1 10.0.1.11 i-0dd 4 ens5 us-east-1a
"""


def make_launch(**changes: object) -> Launch:
    values: dict[str, object] = {
        "run_id": "20261120-121314-digits-ab12",
        "efs_mount": "/mnt/efs",
        "payload": "0123456789abcdef",
        "command": ("-m", "payload.train", "--recipe", "digits"),
        "hosts": choose_hosts(parse_nodes(NODES), 2),
        "interface": "ens5",
    }
    return Launch(**{**values, **changes})  # type: ignore[arg-type]  # the tests give what fits


def test_nodes_are_parsed_and_workers_are_ordered_by_index() -> None:
    nodes = parse_nodes(NODES)
    assert nodes[0] == Node(
        name="deeplearning-master",
        address="10.0.0.12",
        instance_id="i-0aa",
        slots=1,
        interface="ens5",
        zone="us-east-1a",
    )
    assert [node.name for node in workers(nodes)] == [
        "deeplearning-worker1",
        "deeplearning-worker2",
        "deeplearning-worker10",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "deeplearning-worker1 10.0.1.11 i-0dd 4 ens5",
        "deeplearning-worker1 10.0.1.11 i-0dd four ens5 us-east-1a",
        "deeplearning-worker1 10.0.1.11 i-0dd 0 ens5 us-east-1a",
        "deeplearning-worker1 10.0.1.11 i-0dd 99999999999 ens5 us-east-1a",
    ],
)
def test_a_malformed_nodes_line_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(LaunchError, match="line 2 of"):
        parse_nodes("deeplearning-master 10.0.0.12 i-0aa 1 ens5 us-east-1a\n" + line)


def test_too_few_workers_are_refused_with_both_numbers() -> None:
    with pytest.raises(LaunchError, match=r"4 nodes wanted, 3 ready .*deeplearning-worker10"):
        choose_hosts(parse_nodes(NODES), 4)
    with pytest.raises(LaunchError, match="0 nodes wanted"):
        choose_hosts(parse_nodes(NODES), 0)


def test_horovodrun_gets_every_slot_of_every_host_in_order() -> None:
    assert shlex.join(horovodrun(make_launch(), "/opt/deepcdk/runtime/ab/bin/python")) == (
        "/opt/deepcdk/runtime/ab/bin/python -m payload.horovodrun -np 8"
        " -H deeplearning-worker1:4,deeplearning-worker2:4 --gloo --network-interfaces ens5 --start-timeout 70"
        " /opt/deepcdk/runtime/ab/bin/python -m payload.train --recipe digits"
    )


def test_horovod_probes_the_interfaces_only_where_the_nodes_differ() -> None:
    nodes = parse_nodes(NODES.replace("i-0aa 1 ens5", "i-0aa 1 eth0"))
    assert common_interface(nodes) == ""
    assert common_interface(nodes[1:]) == "ens5"
    assert "--network-interfaces" not in horovodrun(make_launch(interface=""), "python")


def test_timeouts_grow_with_the_cluster() -> None:
    assert start_timeout_s(2) < start_timeout_s(16)
    assert gloo_timeout_s(2) < gloo_timeout_s(16)


def test_the_environment_inherits_nothing_that_could_be_secret() -> None:
    login = {"HOME": "/home/ec2-user", "USER": "ec2-user", "AWS_SECRET_ACCESS_KEY": "never"}
    environment = launcher_environment(make_launch(environment=(("TF_CPP_MIN_LOG_LEVEL", "2"),)), login)
    assert "never" not in environment.values()
    assert environment["TF_CPP_MIN_LOG_LEVEL"] == "2"
    assert environment["HOROVOD_CYCLE_TIME"] == "5"
    assert environment["DEEPCDK_RUN"] == "20261120-121314-digits-ab12"
    assert environment["DEEPCDK_RUNS"] == "/mnt/efs/runs"


def test_the_payloads_ssh_comes_before_the_systems() -> None:
    path = launcher_environment(make_launch(), {})["PATH"].split(":")
    assert path[0] == "/mnt/efs/payloads/0123456789abcdef/payload/bin"
    assert "/usr/bin" in path


def test_a_run_id_sorts_by_time_and_names_the_recipe() -> None:
    now = datetime.datetime(2026, 11, 20, 12, 13, 14)
    assert make_run_id(now, "Fashion MNIST", "ab12") == "20261120-121314-fashion-mnist-ab12"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", "../escape"),
        ("run_id", ""),
        ("payload", "0123"),
        ("efs_mount", "/mnt/with space"),
        ("efs_mount", "/mnt/$(reboot)"),
        ("hosts", ()),
        ("environment", (("A=B", "x"),)),
    ],
)
def test_a_launch_that_cannot_be_is_refused_where_it_is_built(field: str, value: object) -> None:
    with pytest.raises(LaunchError):
        make_launch(**{field: value})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"run_id": 1}', '{"hosts": 3}', '{"unknown": 1}'])
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(LaunchError):
        Launch.from_json(text)


@given(
    command=st.lists(st.text(st.characters(codec="utf-8"))).map(tuple),
    value=st.text(st.characters(codec="utf-8", exclude_characters="\0")),
)
def test_a_spec_comes_back_from_json_unchanged(command: tuple[str, ...], value: str) -> None:
    launch = make_launch(command=command, environment=(("ANY", value),))
    assert Launch.from_json(launch.to_json()) == launch

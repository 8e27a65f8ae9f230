"""What a node's boot has written about it, as the agent reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from agent.hardware.node_conf import read_node_conf


def test_values_are_read_as_bash_has_quoted_them(tmp_path: Path) -> None:
    values = {
        "region": "us-east-1",
        "handover_parameter": "",
        "home": "/home/$(touch x) 'y' \"z\"",
        "kind": "x86_64-py3.12",
    }
    conf = tmp_path / "node.conf"
    words = [word for pair in values.items() for word in pair]
    conf.write_bytes(subprocess.check_output(["bash", "-c", "printf '%s=%q\\n' \"$@\"", "bash", *words]))
    assert read_node_conf(conf) == values


def test_a_line_that_is_none_is_left_out(tmp_path: Path) -> None:
    conf = tmp_path / "node.conf"
    conf.write_bytes(b"\xff\nregion\na=1 2\nb='\nregion=eu-west-1\n\n")
    assert read_node_conf(conf) == {"region": "eu-west-1"}


def test_a_machine_that_is_no_node_has_no_facts(tmp_path: Path) -> None:
    assert read_node_conf(tmp_path / "node.conf") == {}

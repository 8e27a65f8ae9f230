"""This machine: its processor, its boot-time registration, its kind and its addresses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.hardware.gpus import NvidiaSmiError
from agent.hardware.machine import (
    NODE_CONF,
    own_addresses,
    processor_name,
    read_address,
    read_node_conf,
    this_machine,
    this_node_kind,
    this_vector_bits,
    vector_bits,
)
from agent.spec.node_kinds import NodeKind

RECORDED = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8124M CPU @  3.00GHz
processor\t: 1
model name\t: Another
"""


def test_processor_is_the_first_one_named() -> None:
    assert processor_name(RECORDED) == "Intel(R) Xeon(R) Platinum 8124M CPU @ 3.00GHz"
    assert processor_name("model name\t:\nnonsense") is None


def test_this_machine_has_cores_memory_and_a_name() -> None:
    machine = this_machine()
    assert machine.cores >= 1 and machine.memory_gib > 0.1 and machine.load >= 0
    assert machine.processor in str(machine) and "at the start" in str(machine)


def test_vector_width_follows_from_cpu_flags() -> None:
    assert vector_bits("flags\t\t: fpu sse2 avx avx2 avx512f\n") == 512
    assert vector_bits("flags\t\t: fpu sse2 avx avx2\nflags: avx512f\n") == 256
    assert vector_bits("flags\t\t: fpu sse2\n") == 128
    assert vector_bits("Features\t: fp asimd\n") == 128
    assert this_vector_bits() in (128, 256, 512)


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


def test_invalid_line_is_excluded(tmp_path: Path) -> None:
    conf = tmp_path / "node.conf"
    conf.write_bytes(b"\xff\nregion\na=1 2\nb='\nregion=eu-west-1\n\n")
    assert read_node_conf(conf) == {"region": "eu-west-1"}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return a machine with x86_64 processors, two GPUs, and an nvidia-smi that answers."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.python_version_tuple", lambda: ("3", "12", "7"))
    monkeypatch.setattr("agent.hardware.gpus.count_gpu_devices", lambda: 2)
    monkeypatch.setattr("agent.hardware.gpus.query", lambda fields: "9.0\n9.0\n")
    return monkeypatch


def test_node_kind_is_the_one_registered_at_boot(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    conf = tmp_path / "node.conf"
    conf.write_text("role=worker\ngpus=1\nkind=aarch64\ninterface=ens5\n")
    assert this_node_kind(conf) == NodeKind(processor="aarch64")
    conf.write_text("kind=pdp11\n")
    with pytest.raises(SpecError, match="kind = 'pdp11'"):
        this_node_kind(conf)


def test_node_kind_is_detected_if_not_registered(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "node.conf").write_text("role=worker\n")
    assert this_node_kind(tmp_path / "node.conf") == NodeKind(
        processor="x86_64", has_gpus=True, capability=90, python="3.12"
    )
    machine.setattr("agent.hardware.gpus.count_gpu_devices", lambda: 0)
    assert this_node_kind(tmp_path / "node.conf") == NodeKind(processor="x86_64", python="3.12")


@pytest.mark.parametrize("answer", [None, "[N/A]\n", "9.0\n8.0\n", "nvidia-smi fails"])
def test_gpus_of_unknown_capability_still_count_as_gpus(
    machine: pytest.MonkeyPatch, tmp_path: Path, answer: str | None
) -> None:
    def query(fields: tuple[str, ...]) -> str | None:
        assert fields == ("compute_cap",)
        if answer == "nvidia-smi fails":
            raise NvidiaSmiError(answer)
        return answer

    machine.setattr("agent.hardware.gpus.query", query)
    assert this_node_kind(tmp_path / "none") == NodeKind(processor="x86_64", has_gpus=True, python="3.12")


def test_node_kind_is_read_from_file_of_boot_script() -> None:
    script = (Path(__file__).parents[3] / "stacks" / "scripts" / "boot.sh").read_text()
    assert f'>"$root{NODE_CONF}"' in script


def test_this_nodes_addresses_are_found() -> None:
    assert own_addresses().get("127.0.0.1", "lo") == "lo"
    assert read_address("no-such-device") == ""

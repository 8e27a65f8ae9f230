"""Facts about a node's kind: what its boot registered goes before what the machine shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.hardware import node_conf, node_kind
from agent.hardware.gpus import NvidiaSmiError
from agent.hardware.node_kind import this_node_kind
from agent.spec.kinds import NodeKind


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with x86_64 processors, two GPUs, and an nvidia-smi that answers."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.python_version_tuple", lambda: ("3", "12", "7"))
    monkeypatch.setattr("agent.hardware.gpus.count_gpu_devices", lambda: 2)
    monkeypatch.setattr("agent.hardware.gpus.query", lambda fields: "9.0\n9.0\n")
    return monkeypatch


def test_what_the_boot_registered_is_the_kind(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    conf = tmp_path / "node.conf"
    conf.write_text("role=worker\ngpus=1\nkind=aarch64\ninterface=ens5\n")
    assert this_node_kind(conf) == NodeKind(processor="aarch64")
    conf.write_text("kind=pdp11\n")
    with pytest.raises(SpecError, match="kind = 'pdp11'"):
        this_node_kind(conf)


@pytest.mark.parametrize("text", [None, "role=worker\n"])
def test_without_it_the_machine_tells(machine: pytest.MonkeyPatch, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "node.conf").write_text(text)
    assert this_node_kind(tmp_path / "node.conf") == NodeKind(
        processor="x86_64", has_gpus=True, capability=90, python="3.12"
    )
    machine.setattr("agent.hardware.gpus.count_gpu_devices", lambda: 0)
    assert this_node_kind(tmp_path / "node.conf") == NodeKind(processor="x86_64", python="3.12")


@pytest.mark.parametrize("answer", [None, "", "[N/A]\n", "9.0\n8.0\n", "nvidia-smi fails"])
def test_gpus_whose_capability_nothing_tells_are_gpus_all_the_same(
    machine: pytest.MonkeyPatch, tmp_path: Path, answer: str | None
) -> None:
    def query(fields: tuple[str, ...]) -> str | None:
        assert fields == ("compute_cap",)
        if answer == "nvidia-smi fails":
            raise NvidiaSmiError(answer)
        return answer

    machine.setattr("agent.hardware.gpus.query", query)
    assert this_node_kind(tmp_path / "none") == NodeKind(processor="x86_64", has_gpus=True, python="3.12")


def test_the_kind_is_read_where_the_boot_writes_it() -> None:
    script = (Path(node_kind.__file__).parents[2] / "stacks" / "scripts" / "node.sh").read_text()
    assert f'>"$root{node_conf.NODE_CONF}"' in script
    assert node_conf.NODE_CONF.is_absolute()

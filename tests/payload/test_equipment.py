"""Facts about equipping a node: ranks are held against real processors, and a layer is made only where it is needed."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from payload.equipment import EquipmentError, check_slots, count_gpus, layer_of, main, script, this_host
from payload.launch import choose_hosts, parse_nodes
from tests.payload.test_launch import NODES, make_launch

OWN = {"program": "fedcba9876543210", "command": ("train.py",)}


def test_without_gpus_a_node_takes_as_many_ranks_as_cores() -> None:
    host = dataclasses.replace(parse_nodes(NODES)[2], slots=4)
    check_slots(host, gpus=0, cores=4)
    with pytest.raises(EquipmentError, match="4 ranks are asked of deeplearning-worker2, which has 2 cores"):
        check_slots(host, gpus=0, cores=2)


def test_with_gpus_the_cores_do_not_count() -> None:
    host = dataclasses.replace(parse_nodes(NODES)[2], slots=4)
    check_slots(host, gpus=8, cores=2)
    with pytest.raises(EquipmentError, match="which has 1 GPUs"):
        check_slots(host, gpus=1, cores=96)


def test_gpus_are_counted_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert count_gpus(tmp_path) == 3


def test_a_plain_run_prepares_as_it_always_did() -> None:
    line = script(make_launch(), ["clear"])
    left = 'rm -rf "$HOME/.cache/deepcdk/taken"'
    assert line.startswith(f"{left} && clear && exec /opt/deepcdk/bin/python3 -m payload.runtime ensure")
    assert "equipment" not in line


@pytest.mark.parametrize(
    "changes", [{**OWN, "requirements": "requirements.txt"}, {**OWN, "keras": 2}, {"ranks_per_node": 4}]
)
def test_what_asks_for_more_is_equipped_after_the_runtime(changes: dict[str, object]) -> None:
    line = script(make_launch(**changes), ["clear"])
    assert line.endswith('payload.equipment /mnt/efs/runs/20261120-121314-digits-ab12 "$runtime"')
    # What the shell makes of it: the runtime's path reaches the equipment as one word, whatever is in it.
    stubbed = line.replace("clear", "true").replace("/opt/deepcdk/bin/python3 -m payload.runtime", "echo /a path:")
    done = subprocess.run(
        ["/bin/sh", "-c", stubbed.replace("exec /opt/deepcdk/bin/python3 -m", "printf '<%s>'")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "</a path: ensure --wheelhouse /mnt/efs/payloads/.wheelhouse>" in done.stdout


def test_only_packages_need_a_layer(tmp_path: Path) -> None:
    assert layer_of(make_launch(**OWN), Path("/runtime/bin/python"), tmp_path) is None
    layer = layer_of(make_launch(**OWN, keras=2), Path("/runtime/bin/python"), tmp_path)
    assert layer is not None
    assert layer.further == ("tf-keras==2.21.*",)
    assert layer.program == Path("/mnt/efs/payloads/fedcba9876543210/program")


def test_keras_2_goes_with_the_runtimes_tensorflow() -> None:
    payload = Path(__file__).parents[2] / "payload"
    assert "\ntensorflow-cpu==2.21." in (payload / "requirements.txt").read_text()
    assert "\ntensorflow==2.21." in (payload / "requirements-gpu.txt").read_text()


def test_a_node_finds_itself_among_the_hosts_by_its_address() -> None:
    hosts = choose_hosts(parse_nodes(NODES), 2)
    here = dataclasses.replace(hosts[1], address="127.0.0.1")
    assert this_host(make_launch(hosts=(hosts[0], here))) in (here, None)  # None where no loopback is up
    assert this_host(make_launch(hosts=hosts)) is None


def test_the_last_line_is_the_ranks_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.json").write_text(make_launch(ranks_per_node=4).to_json())
    assert main([str(tmp_path), "/runtime/bin/python"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "/runtime/bin/python"


def test_what_is_wrong_is_told_on_the_error_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "/runtime/bin/python"]) == 1
    assert "spec.json" in capsys.readouterr().err

"""The load of a node, from the kernel's counters and nvidia-smi. Impossible values are never reported."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.hardware.gpus import parse_load
from agent.hardware.load import Load, measure, parse_counters, parse_memory

STAT = "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 50 0 25 400 25 0 0 0 0 0\ncpu1 50 0 25 400 25 0 0 0 0 0\nintr 1\n"
LATER = STAT.replace("cpu  100 0 50 800 50", "cpu  160 0 90 890 60")
NET = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls\n"
    "    lo: 9999 1 0 0 0 0 0 0 9999 1 0 0 0 0 0 0\n"
    "  ens5: 1000 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n"
    "  eth1: 24 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
)
MEMORY = "MemTotal:        4000 kB\nMemFree:          100 kB\nMemAvailable:    3000 kB\n"
SMI = (
    "Tesla V100-SXM2-16GB, 97, 15360, 16160, 61\n"
    "Tesla V100-SXM2-16GB, [N/A], 0, 16160, [Not Supported]\n"
)  # fmt: skip


def test_idle_and_waiting_time_are_not_busy_and_the_loopback_does_not_count() -> None:
    counters = parse_counters(STAT, NET)
    assert (counters.busy, counters.total) == (150, 1000)
    assert (counters.received, counters.sent) == (1024, 307)


@pytest.mark.parametrize("text", ["", "intr 5", "cpu 1 2"])
def test_malformed_counters_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="/proc/stat"):
        parse_counters(text, NET)


@pytest.mark.parametrize("line", ["ens5: 1000 1", "ens5:", "", "no colon", "ens5: 1 2 3 4 5 6 7 8 x"])
def test_malformed_interface_is_rejected(line: str) -> None:
    with pytest.raises(ValueError, match=r"/proc/net/dev|invalid literal"):
        parse_counters(STAT, f"{NET}{line}\n")


def test_available_memory_is_not_in_use() -> None:
    assert parse_memory(MEMORY) == (1000 * 1024, 4000 * 1024)
    with pytest.raises(ValueError, match="MemAvailable"):
        parse_memory("MemTotal: 4000 kB\n")


def test_load_is_the_change_during_measurement(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    for name, text in (("stat", STAT), ("net/dev", NET), ("meminfo", MEMORY)):
        (tmp_path / name).write_text(text)

    def later(seconds: float) -> None:
        (tmp_path / "stat").write_text(LATER)

    load = measure(tmp_path, tmp_path, sleep=later)
    assert load.processor == pytest.approx(0.5)
    assert (load.cores, load.memory_total, load.received_per_s) == (2, 4000 * 1024, 0.0)


def test_printed_load_can_be_parsed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent.hardware.load"], capture_output=True, text=True, check=True, timeout=60
    )
    load = Load.from_json(done.stdout)
    assert 0 <= load.processor <= 1
    assert 0 < load.memory_used < load.memory_total
    assert Load.from_json(json.dumps(dataclasses.asdict(load))) == load
    with_gpu = dataclasses.replace(load, gpus=parse_load(SMI))
    assert Load.from_json(json.dumps(dataclasses.asdict(with_gpu))) == with_gpu


@pytest.mark.parametrize("value", ["x", None, [], True, float("inf")])
def test_load_without_its_numbers_is_invalid(value: object) -> None:
    document = {each.name: 1 for each in dataclasses.fields(Load)} | {"gpus": [], "disk_used": value}
    with pytest.raises(ValueError, match=r"disk_used = .* must be a number"):
        Load.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"gpus": []}', '{"gpus": [{}]}', "[" * 100_000])
def test_malformed_load_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid load of a node: |^JSON is nested too deeply$"):
        Load.from_json(text)

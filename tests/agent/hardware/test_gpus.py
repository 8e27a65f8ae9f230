"""GPUs: their device files, and nvidia-smi's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.hardware import gpus
from agent.hardware.gpus import (
    GpuInfo,
    GpuLoad,
    NvidiaSmiError,
    count_gpu_devices,
    parse_info,
    parse_load,
    read_info,
    read_load,
)
from tests.stand_ins import write_program

# nvidia-smi's output for INFO_FIELDS: three GPUs with error counts (the first was recorded), and one GPU without.
INFO = """\
NVIDIA H200, 580.159.04, 143771 MiB, 0
NVIDIA A100-SXM4-40GB, 570.86.15, 40960 MiB, 0
NVIDIA A100-SXM4-40GB, 570.86.15, 40960 MiB, 2
Tesla M60, 470.1, 7680 MiB, [N/A]
"""
# Its output for LOAD_FIELDS without units; the first line was recorded during training.
LOAD = """\
NVIDIA H200, 92, 142057, 143771, 45
Tesla V100-SXM2-16GB, 97, 15360, 16160, 61
Tesla V100-SXM2-16GB, [N/A], 0, 16160, [Not Supported]
"""
FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


def test_model_driver_and_errors_are_parsed() -> None:
    found = parse_info(INFO)
    assert found[0] == GpuInfo(name="NVIDIA H200", driver="580.159.04", memory="143771 MiB", uncorrected_errors=0)
    assert [gpu.uncorrected_errors for gpu in found] == [0, 0, 2, None]


def test_load_is_parsed_and_missing_values_are_none() -> None:
    first, *_, last = parse_load(LOAD)
    assert first == GpuLoad(
        name="NVIDIA H200",
        utilization=0.92,
        memory_used=142057 << 20,
        memory_total=143771 << 20,
        temperature_c=45.0,
    )
    assert (last.utilization, last.temperature_c) == (None, None)


@pytest.mark.parametrize("word", ["inf", "nan", "1e999", "9" * 5000, ""])
def test_non_numeric_load_counts_as_missing(word: str) -> None:
    (load,) = parse_load(f"Tesla V100-SXM2-16GB, {word}, {word}, {word}, {word}")
    assert (load.utilization, load.memory_used, load.memory_total, load.temperature_c) == (None, None, None, None)


def test_output_that_is_not_utf8_is_read(tmp_path: Path) -> None:
    (gpu,) = read_load(write_program(tmp_path / "nvidia-smi", r"printf 'Tesla \377, 1, 2, 3, 4\n'"))
    assert gpu.name == "Tesla \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("text", ["No devices were found", "Tesla M60, 470.1"])
def test_unexpected_output_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text}.* instead of the values of name, "):
        parse_info(text)


def test_each_query_names_its_fields_and_units(tmp_path: Path) -> None:
    absent = str(tmp_path / "nvidia-smi")
    assert (read_info(absent), read_load(absent)) == ((), ())
    echo = write_program(tmp_path / "nvidia-smi", f'echo "$@" >> {tmp_path}/asked')
    assert (read_info(echo), read_load(echo)) == ((), ())
    assert (tmp_path / "asked").read_text().splitlines() == [
        "--query-gpu=name,driver_version,memory.total,ecc.errors.uncorrected.volatile.total --format=csv,noheader",
        "--query-gpu=name,utilization.gpu,memory.used,memory.total,temperature.gpu --format=csv,noheader,nounits",
    ]


def test_failed_program_is_reported_with_its_last_line(tmp_path: Path) -> None:
    failing = write_program(tmp_path / "nvidia-smi", f'echo; echo "{FAILED}" >&2; exit 9')
    with pytest.raises(NvidiaSmiError, match=FAILED):
        read_info(failing)
    assert read_load(failing) == ()
    with pytest.raises(NvidiaSmiError, match="status 9"):
        read_info(write_program(tmp_path / "nvidia-smi", "exit 9"))


def test_hanging_program_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "TIMEOUT_S", 0.1)
    with pytest.raises(NvidiaSmiError, match=r"did not finish within 0\.1 s"):
        read_info(write_program(tmp_path / "nvidia-smi", "exec sleep 60"))


def test_gpus_are_counted_by_their_device_files(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia0-old"):
        (tmp_path / "dev" / name).touch()
    assert count_gpu_devices(tmp_path) == 3
    assert count_gpu_devices(tmp_path / "absent") == 0

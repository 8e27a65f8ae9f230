"""The table's writer, on recorded answers of DescribeInstanceTypes."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stacks.instance_types import find
from tools import instance_types
from tools.instance_types import RecordingError, about, instance_type, main, parse, read_recording

# What EC2 says of one type, less what the table does not keep.
RECORDED: dict[str, Any] = {
    "InstanceType": "p6-b300.48xlarge",
    "VCpuInfo": {"DefaultVCpus": 192},
    "MemoryInfo": {"SizeInMiB": 4194304},
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "GpuInfo": {
        "Gpus": [{"Name": "B300", "Manufacturer": "NVIDIA", "Count": 8, "LogicalGpuCount": 8}],
        "TotalGpuMemoryInMiB": 2200320,
    },
    "InstanceStorageInfo": {
        "Disks": [{"Count": 8, "SizeInGB": 3800}],
        "NvmeSupport": "required",
        "TotalSizeInGB": 30400,
    },
    "NetworkInfo": {
        "NetworkPerformance": "6400 Gigabit",
        "EfaSupported": True,
        "EfaInfo": {"MaximumEfaInterfaces": 16},
        "NetworkCards": [{"NetworkCardIndex": 0, "InterfaceTypes": ["interface"]}]
        + [{"NetworkCardIndex": n, "InterfaceTypes": ["interface", "efa", "efa-only"]} for n in range(1, 17)],
    },
    "PlacementGroupInfo": {"SupportedStrategies": ["cluster", "partition", "spread"]},
    "Hypervisor": "nitro",
}


def test_a_recorded_answer_becomes_the_line_in_the_tree() -> None:
    assert instance_type(RECORDED) == find("p6-b300.48xlarge")


@pytest.mark.parametrize(
    ("name", "count", "joined"), [("V100", 8, 8), ("A100", 8, 8), ("H100", 1, 0), ("A10G", 8, 0), ("L40S", 8, 0)]
)
def test_nvlink_joins_several_gpus_of_the_kinds_that_have_it(name: str, count: int, joined: int) -> None:
    gpus = {"Gpus": [{"Name": name, "Manufacturer": "NVIDIA", "Count": count}], "TotalGpuMemoryInMiB": 1}
    assert instance_type({**RECORDED, "GpuInfo": gpus}).nvlink_gpus == joined


def test_what_a_type_lacks_is_zero_or_empty() -> None:
    bare = {
        key: value for key, value in RECORDED.items() if key not in ("GpuInfo", "InstanceStorageInfo", "Hypervisor")
    }
    bare["NetworkInfo"] = {"NetworkPerformance": "Low", "EfaSupported": False}
    found = instance_type(bare)
    assert (found.gpus, found.gpu_name, found.efa_interfaces, found.store_disks, found.bare_metal) == (
        0,
        "",
        0,
        0,
        True,
    )


def test_a_share_of_a_gpu_counts_as_the_one_that_a_node_sees() -> None:
    shared = {"Name": "L4", "Manufacturer": "NVIDIA", "Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 0.125}
    assert instance_type({**RECORDED, "GpuInfo": {"Gpus": [shared], "TotalGpuMemoryInMiB": 2861}}).gpus == 1


def test_disks_that_are_not_nvme_are_not_counted() -> None:
    store = {"Disks": [{"Count": 2, "SizeInGB": 40}], "NvmeSupport": "unsupported", "TotalSizeInGB": 80}
    found = instance_type({**RECORDED, "InstanceStorageInfo": store})
    assert (found.store_disks, found.store_gb) == (0, 0)


@pytest.mark.parametrize("document", [[RECORDED], {"InstanceTypes": [RECORDED]}, {"p6-b300.48xlarge": RECORDED}])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_recordings_come_as_arrays_and_objects_packed_or_not(document: object, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"types{suffix}"
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    assert read_recording(path) == [RECORDED]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "not json", '{"InstanceTypes": []}'])
def test_a_recording_without_types_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "types.json"
    path.write_text(text)
    with pytest.raises(RecordingError, match=r"types\.json"):
        read_recording(path)


def test_a_wrong_recording_leaves_the_table_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--recording", str(tmp_path / "none.json"), "--source", "nowhere"]) == 1
    assert "none.json" in capsys.readouterr().err
    assert find("c5.2xlarge") is not None


def test_without_credentials_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert main(["--region", "us-east-1"]) == 1
    assert "no AWS credentials" in capsys.readouterr().err


def test_a_recording_must_say_where_it_is_from() -> None:
    with pytest.raises(SystemExit):
        parse(["--recording", "types.json"])


def test_the_table_names_its_day_and_source() -> None:
    day = datetime.date(2026, 11, 20)
    assert about("X", day, 3) == "3 EC2 instance types; written 2026-11-20 from X"


def test_a_recording_becomes_a_table_that_names_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, recording = tmp_path / "table.csv", tmp_path / "types.json"
    recording.write_text(json.dumps([RECORDED, {**RECORDED, "InstanceType": "a1.odd"}, "no type"]))
    monkeypatch.setattr(instance_types, "TABLE", table)
    assert main(["--recording", str(recording), "--source", "a recording"]) == 0
    about_it, _, *lines = table.read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["a1.odd", "p6-b300.48xlarge"]
    assert about_it.startswith("# 2 EC2 instance types; written 20") and about_it.endswith(" from a recording")
    assert capsys.readouterr().out == f"{table}: {about_it.removeprefix('# ')}\n"


def test_a_source_without_a_recording_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--source", "nowhere"])
    assert "go together" in capsys.readouterr().err
    assert parse(["--region", "us-west-2"]).region == "us-west-2"


def test_cards_of_old_recordings_all_take_efa_and_a_type_without_efa_has_no_first_card() -> None:
    network = {**RECORDED["NetworkInfo"], "NetworkCards": [{"NetworkCardIndex": n} for n in (3, 2)]}
    assert instance_type({**RECORDED, "NetworkInfo": network}).efa_first_card == 2
    without = instance_type({**RECORDED, "NetworkInfo": {**network, "EfaSupported": False}})
    assert (without.efa_interfaces, without.efa_first_card) == (0, 0)

"""Writing the table of instance types from recorded answers of DescribeInstanceTypes."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stacks.instance_types import InstanceType, find
from tools import instance_types
from tools.instance_types import RecordingError, instance_type, main, parse, read_recording

# EC2's answer for one type, without the parts that the table does not keep.
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


def test_recorded_response_gives_the_committed_line() -> None:
    assert instance_type(RECORDED) == find("p6-b300.48xlarge")


@pytest.mark.parametrize(("name", "count", "joined"), [("V100", 8, 8), ("B300", 2, 2), ("H100", 1, 0), ("L40S", 8, 0)])
def test_nvlink_connects_several_gpus_of_supported_kinds(name: str, count: int, joined: int) -> None:
    gpus = {"Gpus": [{"Name": name, "Manufacturer": "NVIDIA", "Count": count}], "TotalGpuMemoryInMiB": 1}
    assert instance_type({**RECORDED, "GpuInfo": gpus}).nvlink_gpus == joined


def test_fraction_of_a_gpu_counts_as_one() -> None:
    shared = {"Name": "L4", "Manufacturer": "NVIDIA", "Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 0.125}
    assert instance_type({**RECORDED, "GpuInfo": {"Gpus": [shared], "TotalGpuMemoryInMiB": 2861}}).gpus == 1


def test_only_nvme_disks_are_counted() -> None:
    store = {"Disks": [{"Count": 2, "SizeInGB": 40}], "NvmeSupport": "unsupported", "TotalSizeInGB": 80}
    found = instance_type({**RECORDED, "InstanceStorageInfo": store})
    assert (found.store_disks, found.store_gb) == (0, 0)


@pytest.mark.parametrize("document", [[RECORDED], {"InstanceTypes": [RECORDED]}, {"p6-b300.48xlarge": RECORDED}])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_recordings_may_be_arrays_or_objects_and_compressed(document: object, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"types{suffix}"
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    assert read_recording(path) == [RECORDED]


NO_ITEMS = "contains no items of DescribeInstanceTypes; record it with `aws ec2 describe-instance-types`"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "is not valid JSON (Expecting value: line 1 column 1 (char 0)); pass the output of "
            "`aws ec2 describe-instance-types`",
        ),
        ("{}", NO_ITEMS),
        ('{"InstanceTypes": []}', NO_ITEMS),
        ("null", NO_ITEMS),
    ],
)
def test_recording_without_types_is_rejected_with_its_name(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "types.json"
    path.write_text(text)
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    assert (caught.value.path, str(caught.value)) == (path, f"{path}: {said}")


def test_invalid_recording_leaves_table_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--recording", str(tmp_path / "none.json"), "--source", "nowhere"]) == 1
    assert "none.json: cannot be read: No such file or directory\n" in capsys.readouterr().err
    assert find("c5.2xlarge") is not None


def test_missing_credentials_are_reported_with_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert main(["--region", "us-east-1"]) == 1
    assert "no AWS credentials" in capsys.readouterr().err


def test_table_from_recording_has_its_source(
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


def test_recording_requires_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--source", "nowhere"], ["--recording", "types.json"]):
        with pytest.raises(SystemExit):
            parse(words)
        assert "must be used together" in capsys.readouterr().err
    assert parse(["--region", "us-west-2"]).region == "us-west-2"


def test_first_efa_card_of_old_recordings_and_types_without_efa() -> None:
    network = {**RECORDED["NetworkInfo"], "NetworkCards": [{"NetworkCardIndex": n} for n in (3, 2)]}
    assert instance_type({**RECORDED, "NetworkInfo": network}).efa_first_card == 2
    without = instance_type({**RECORDED, "NetworkInfo": {**network, "EfaSupported": False}})
    assert (without.efa_interfaces, without.efa_first_card) == (0, 0)


# EC2's answer for every type.
LEAST: dict[str, Any] = {
    "InstanceType": "t1.none",
    "VCpuInfo": {"DefaultVCpus": 1},
    "MemoryInfo": {"SizeInMiB": 627},
    "ProcessorInfo": {"SupportedArchitectures": ["i386", "x86_64"]},
    "NetworkInfo": {"NetworkPerformance": "Very Low"},
}
PLAIN = InstanceType(
    name="t1.none", vcpus=1, memory_mib=627, architectures=("i386", "x86_64"), gpus=0, gpu_maker="", gpu_name="",
    gpu_memory_mib=0, nvlink_gpus=0, network="Very Low", efa_interfaces=0, efa_first_card=0, store_disks=0, store_gb=0,
    placements=(), hypervisor="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("told", "changed"),
    [
        ({}, {}),
        ({"InstanceStorageInfo": {"NvmeSupport": "supported"}}, {}),
        ({"PlacementGroupInfo": {}}, {}),
        ({"GpuInfo": {"Gpus": []}}, {}),
        (
            {"GpuInfo": {"Gpus": [{"Name": "M60", "Manufacturer": "NVIDIA"}]}},
            {"gpu_name": "M60", "gpu_maker": "NVIDIA"},
        ),
        (
            {"NetworkInfo": {"NetworkPerformance": "Low", "NetworkCards": [{"NetworkCardIndex": 1}]}},
            {"network": "Low"},
        ),
    ],
)
def test_fields_missing_in_ec2_response_are_zero_or_empty(told: dict[str, Any], changed: dict[str, Any]) -> None:
    assert instance_type({**LEAST, **told}) == dataclasses.replace(PLAIN, **changed)


class Ec2:
    """Answer DescribeInstanceTypes in two pages, in the region of the session."""

    def __init__(self, region_name: str | None) -> None:
        self.meta = SimpleNamespace(region_name=region_name or "of-the-profile")

    def client(self, service: str) -> Ec2:
        assert service == "ec2"
        return self

    def get_paginator(self, call: str) -> Ec2:
        assert call == "describe_instance_types"
        return self

    def paginate(self) -> list[dict[str, Any]]:
        return [{"InstanceTypes": [RECORDED]}, {"InstanceTypes": [LEAST]}]


@pytest.mark.parametrize(
    ("flags", "environ", "region"),
    [
        (["--region", "us-west-2"], {"AWS_REGION": "eu-west-1"}, "us-west-2"),
        ([], {"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        ([], {}, "of-the-profile"),
    ],
)
def test_table_from_all_pages_of_aws_has_its_region(
    flags: list[str], environ: dict[str, str], region: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("boto3.Session", Ec2)
    monkeypatch.setattr(instance_types, "TABLE", tmp_path / "table.csv")
    assert main(flags) == 0
    about_it, _, *lines = (tmp_path / "table.csv").read_text().splitlines()
    assert about_it.endswith(f" from DescribeInstanceTypes in {region}")
    assert [line.partition(",")[0] for line in lines] == ["p6-b300.48xlarge", "t1.none"]

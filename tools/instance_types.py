"""Write stacks/instance_types.csv from EC2's descriptions of its instance types.

    python -m tools.instance_types                       ask AWS, with the current region and credentials
    python -m tools.instance_types --region us-west-2    ask another region; each region lists only its own types
    python -m tools.instance_types --recording FILE --source TEXT
        read a recorded DescribeInstanceTypes (a JSON array or object of its items, .json or .json.gz) and note its
        source

Asking AWS needs the permission ec2:DescribeInstanceTypes and is free of charge.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import unreadable
from cluster.errors import DeepcdkError
from stacks.instance_types import TABLE, InstanceType, render

# GPUs that EC2 connects by NVLink in all types with several of them. DescribeInstanceTypes does not include this. AWS's
# pages on the families P3 to P6 do, and mention no NVLink for the families G.
NVLINKED: Final = frozenset({"V100", "A100", "H100", "H200", "B200", "B300", "GB200", "GB300"})


class RecordingError(ValueError):
    """A recording is unreadable or contains no instance types. `path`: the recording."""

    def __init__(self, path: Path, rule: str) -> None:
        self.path = path
        super().__init__(f"{path}: {rule}")


def instance_type(item: Mapping[str, Any]) -> InstanceType:
    """Convert an item of DescribeInstanceTypes to an entry of the table."""
    network = item["NetworkInfo"]
    gpus = item.get("GpuInfo", {}).get("Gpus", [])
    efa_cards = [
        card["NetworkCardIndex"]
        for card in network.get("NetworkCards", [])
        # In older recordings, without a card's kinds of interfaces, all cards support EFA.
        if "efa-only" in card.get("InterfaceTypes", ["efa-only"])
    ]
    efa = network["EfaInfo"]["MaximumEfaInterfaces"] if network.get("EfaSupported") else 0
    count = sum(gpu.get("LogicalGpuCount", gpu.get("Count", 0)) for gpu in gpus)
    gpu_name = gpus[0]["Name"] if gpus else ""
    store = item.get("InstanceStorageInfo", {})
    nvme = store.get("NvmeSupport") in ("required", "supported")
    return InstanceType(
        name=item["InstanceType"],
        vcpus=item["VCpuInfo"]["DefaultVCpus"],
        memory_mib=item["MemoryInfo"]["SizeInMiB"],
        architectures=tuple(item["ProcessorInfo"]["SupportedArchitectures"]),
        # A type with a fraction of a GPU has a count of 0, but its node sees one logical GPU.
        gpus=count,
        gpu_maker=gpus[0]["Manufacturer"] if gpus else "",
        gpu_name=gpu_name,
        gpu_memory_mib=item.get("GpuInfo", {}).get("TotalGpuMemoryInMiB", 0),
        nvlink_gpus=count if count > 1 and gpu_name in NVLINKED else 0,
        network=network["NetworkPerformance"],
        efa_interfaces=efa,
        efa_first_card=min(efa_cards) if efa else 0,
        store_disks=sum(disk["Count"] for disk in store.get("Disks", [])) if nvme else 0,
        store_gb=store.get("TotalSizeInGB", 0) if nvme else 0,
        placements=tuple(item.get("PlacementGroupInfo", {}).get("SupportedStrategies", [])),
        hypervisor=item.get("Hypervisor", ""),
    )


def read_recording(path: Path) -> list[Mapping[str, Any]]:
    """Read recorded items of DescribeInstanceTypes. Raises RecordingError if the file is unreadable or has no items."""
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except OSError as error:
        raise RecordingError(path, f"cannot be read: {unreadable(error)}") from None
    except ValueError as error:
        raise RecordingError(
            path, f"is not valid JSON ({error}); pass the output of `aws ec2 describe-instance-types`"
        ) from None
    if isinstance(document, Mapping):
        document = document.get("InstanceTypes", list(document.values()))
    listed = document if isinstance(document, list) else []
    items = [item for item in listed if isinstance(item, Mapping) and "InstanceType" in item]
    if not items:
        raise RecordingError(
            path, "contains no items of DescribeInstanceTypes; record it with `aws ec2 describe-instance-types`"
        )
    return items


def ask_aws(region: str | None) -> tuple[list[Mapping[str, Any]], str]:
    """Ask EC2 for all types that a region offers; return them and the region's name. Raises AwsError."""
    from cluster.aws.errors import aws_errors

    with aws_errors("asking EC2 for its instance types"):
        import boto3

        # Use a separate session: boto3.client() would keep the first credentials for the whole process.
        client = boto3.Session(region_name=region or os.environ.get("AWS_REGION")).client("ec2")
        pages = client.get_paginator("describe_instance_types").paginate()
        return [item for page in pages for item in page["InstanceTypes"]], str(client.meta.region_name)


def about(source: str, today: datetime.date, count: int) -> str:
    """Return the table's first line: the number of types, the date and the source."""
    return f"{count} EC2 instance types; written {today.isoformat()} from {source}"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line.

    Exits with status 2 for invalid flags, and if only one of --recording and --source is given.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.instance_types", description="Write stacks/instance_types.csv again."
    )
    parser.add_argument("--region", help="region to query; default: the AWS CLI's region")
    parser.add_argument(
        "--recording", type=Path, help="file with recorded output of DescribeInstanceTypes, instead of AWS"
    )
    parser.add_argument("--source", help="origin of the recording, for the table's first line")
    given = parser.parse_args(argv)
    if bool(given.recording) != bool(given.source):
        parser.error("--recording and --source must be used together, because the table states its origin")
    return given


def main(argv: Sequence[str]) -> int:
    """Write the table of instance types and print a summary; return 1 if the types cannot be read, else 0."""
    given = parse(argv)
    source: str
    items: Iterable[Mapping[str, Any]]
    try:
        if given.recording:
            items, source = read_recording(given.recording), given.source
        else:
            items, region = ask_aws(given.region)
            source = f"DescribeInstanceTypes in {region}"
    except (RecordingError, DeepcdkError) as error:
        print(f"instance_types: {error}", file=sys.stderr)
        return 1
    types = [instance_type(item) for item in items]
    line = about(source, datetime.datetime.now(datetime.UTC).date(), len(types))
    TABLE.write_text(render(types, line), encoding="utf-8")
    print(f"{TABLE}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

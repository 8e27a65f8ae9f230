"""Templates of a few configurations, synthesized once for all tests and all processes of pytest-xdist."""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from stacks.config import ClusterConfig
from tests.stacks.clusters import synthesis
from tests.stacks.clusters.eight import CLUSTERS, SSH_CIDR
from tests.stacks.clusters.template import Template

T = TypeVar("T")
Variant = Callable[[str], Template]
Inspect = Callable[[str], synthesis.Inspected]

BLOCK: Final = "cr-0123456789abcdef0"
POOL: Final = "arn:aws:resource-groups:us-east-1:123456789012:group/ours"
EXISTING_KEY: Final = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
FLOW_BUCKET: Final = "arn:aws:s3:::my-flow-logs/cluster"
TOPIC: Final = "arn:aws:sns:us-east-1:123456789012:ops"
UBUNTU: Final = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"

VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    # Everything is removed or as small as possible, and no network may connect.
    "temporary": {
        "ssh_cidr": (),
        "retain_data": False,
        "kms_key": "create",
        "node_logs": True,
        "log_retention_days": 7,
        "bucket_versioning": False,
        "bucket_expire_versions_days": 0,
        "efs_throughput": "provisioned",
        "efs_throughput_mibps": 256,
        "vpc_endpoints": (),
        "idle_minutes": 10,
        "max_hours": 25.0,
    },
    # Options that show and notify, but stop nothing.
    "watched": {
        "idle_minutes": 0,
        "max_replacements_per_hour": 0,
        "alarms": True,
        "dashboard": True,
        "budget_usd": 5.0,
        "budget_emails": ("ops@example.com",),
        "budget_stops_workers": False,
    },
    # An existing file system and key, an FSx scratch file system, SSH from prefix lists.
    "borrowed": {
        "ssh_cidr": (),
        "ssh_prefix_lists": ("pl-0123456789abcdef0",),
        "file_system_id": "fs-0123456789abcdef0",
        "kms_key": EXISTING_KEY,
        "node_logs": True,
        "fsx_capacity_gib": 1200,
        "fsx_s3": "s3://imagenet",
        "max_hours": 24.0,
    },
    "GPU block": {
        "worker_instance_type": "p5.48xlarge",
        "efa": True,
        "capacity_reservation": BLOCK,
        "capacity_block": True,
        "node_logs": True,
        "node_metrics": True,
        "dashboard": True,
        "alarms": True,
        "alarm_emails": ("ops@example.com",),
        "alarm_topic": TOPIC,
    },
    "existing VPC": {
        "vpc_id": "vpc-0123456789abcdef0",
        "public_subnet_ids": ("subnet-0aaaaaaaaaaaaaaa1",),
        "private_subnet_ids": ("subnet-0bbbbbbbbbbbbbbb1", "subnet-0bbbbbbbbbbbbbbb2"),
        "availability_zones": 2,
        "flow_logs": FLOW_BUCKET,
        "alarms": True,
        "dashboard": True,
    },
    "mixed types": {
        "worker_instance_type": "g5.xlarge",
        "worker_alternatives": ("g5.2xlarge", "g5.4xlarge"),
        "on_demand_allocation": "lowest-price",
        "capacity_reservation": POOL,
        "workers": 0,
        "update_policy": "rolling",
        "update_batch": 3,
    },
    "own images": {
        "worker_image_id": "ami-0123456789abcdef0",
        "worker_root_device": "/dev/sda1",
        "master_image_parameter": UBUNTU,
        "login_user": "ubuntu",
        "workers": 16,
        "max_workers": 50,
        "capacity_policy": "at-least 15",
        "vpc_cidr": "10.9.0.0/24",
        "availability_zones": 2,
        "zones": ("us-east-1c", "us-east-1b"),
        "ssh_cidr": ("198.18.4.0/24", "198.18.5.0/24"),
    },
}
"""Configurations that differ from the named clusters."""


@pytest.fixture(scope="session")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Variant:
    """Return a function from the name of a configuration in VARIANTS to its template."""

    def make(name: str) -> Template:
        return synthesis.synthesise(ClusterConfig(**{"ssh_cidr": SSH_CIDR, **VARIANTS[name]}))

    return functools.cache(lambda name: kept(tmp_path_factory, f"variant {name}", functools.partial(make, name)))


@pytest.fixture(scope="session")
def template(variant: Variant) -> Template:
    """Return the template of the default configuration."""
    return variant("default")


@pytest.fixture(scope="session")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> Inspect:
    """Return a function from the name of a cluster to its template and the inspectors' findings."""

    def make(name: str) -> synthesis.Inspected:
        return synthesis.inspect(CLUSTERS[name].config())

    return functools.cache(lambda name: kept(tmp_path_factory, f"cluster {name}", functools.partial(make, name)))


def kept(folders: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """Return the result that another process of this pytest session stored under a name, or compute it."""
    folder = folders.getbasetemp()
    if folder.name.startswith("popen-"):  # a process of pytest-xdist
        folder = folder.parent
    place = Path(folder, f"{re.sub(r'[^A-Za-z0-9]', '-', name)}.pickle")
    if place.exists():
        found: T = pickle.loads(place.read_bytes())
        return found
    made = make()
    draft = place.with_suffix(f".{folders.getbasetemp().name}")
    draft.write_bytes(pickle.dumps(made))
    draft.replace(place)
    return made

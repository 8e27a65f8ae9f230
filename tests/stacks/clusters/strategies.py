"""Hypothesis strategies for valid clusters over all keys of `cdk.json`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

from stacks import images
from stacks.config import RESERVED_ADDRESSES
from stacks.config_keys.compute import ON_DEMAND_ALLOCATIONS, SPOT_ALLOCATIONS
from stacks.config_keys.lustre import FSX_THROUGHPUTS
from stacks.config_keys.network import ENDPOINTS, S3_ENDPOINT
from stacks.config_keys.observability import RETENTIONS
from stacks.config_keys.storage import EFS_DAYS
from stacks.instance_types import InstanceType, find, names

Values = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

UNKNOWN_TYPES: Final = ("p3.16xlarge", "c99.large")
UBUNTU: Final = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
_BOTH: Final = st.booleans()
_RARELY: Final = st.sampled_from([False, False, False, True])
_EMAILS: Final = st.lists(
    st.sampled_from(["ops@example.com", "you@example.org", "a.b+c@x.io"]), unique=True, max_size=3
)
# Without the prefixes of names that EC2 and S3 reserve.
_NAME: Final = r"(?!(?:sg|sthree|amzn-s3-demo)(?:-|\Z)|xn--)[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?"
_TEXT: Final = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)
_HEX: Final = "0123456789abcdef"


def _id(prefix: str, kind: str = "") -> st.SearchStrategy[str]:
    return st.text(_HEX, min_size=16, max_size=16).map(lambda text: f"{prefix}-{kind or '0'}{text}")


def _some(strategy: st.SearchStrategy[str], low: int, high: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(strategy, min_size=low, max_size=high, unique=True).map(tuple)


@functools.cache
def usable_types() -> tuple[str, ...]:
    """Return the instance types that have an image and a runtime."""
    found = [kind for kind in map(find, names()) if kind and "x86_64" in kind.architectures]
    return tuple(kind.name for kind in found if images.default(kind))


@functools.cache
def _types_with(what: str) -> tuple[str, ...]:
    rules: dict[str, Callable[[InstanceType], bool]] = {
        "efa": lambda kind: kind.efa_interfaces > 0 and "cluster" in kind.placements,
        "disks": lambda kind: kind.store_disks > 0,
        "gpus": lambda kind: kind.gpus > 0,
        "any": lambda kind: True,
    }
    found = (find(name) for name in usable_types())
    return tuple(kind.name for kind in found if kind and rules[what](kind))


@st.composite
def clusters(draw: Draw) -> Values:
    """Draw a valid configuration: a value for every key."""
    compute = _compute(draw)
    single_zone = compute["placement_group"] or compute["efa"] or compute["capacity_reservation"].startswith("cr-")
    network = _network(draw, zones_at_most=1 if single_zone else 6, workers=compute["workers"])
    compute["max_workers"] = draw(st.integers(max(1, compute["workers"]), network.pop("room")))
    lustre = _lustre(draw)
    if lustre["fsx_capacity_gib"] and UBUNTU in (compute["worker_image_parameter"], compute["master_image_parameter"]):
        lustre |= {key: value for key, value in _NO_LUSTRE.items() if key in lustre}
    return {
        "name": draw(st.from_regex(_NAME, fullmatch=True)),
        **network,
        **compute,
        **lustre,
        **_storage(draw),
        **_limits(draw, compute),
        **_observability(draw),
    }


def _network(draw: Draw, *, zones_at_most: int, workers: int) -> Values:
    exists = draw(_RARELY)
    zones = draw(st.integers(1, min(zones_at_most, 6 if exists else 2)))
    opens = draw(st.sampled_from([True, True, False]))
    length = draw(st.integers(16, 24).filter(lambda n: zones * (2 ** (30 - n) - RESERVED_ADDRESSES) >= workers))
    room = 1000 if exists else min(1000, zones * (2 ** (30 - length) - RESERVED_ADDRESSES))
    third = draw(st.integers(0, 255)) & (0xFF << max(0, 24 - length)) & 0xFF
    anywhere = opens and draw(_RARELY)
    address = st.builds("198.18.{}.{}/32".format, st.integers(0, 255), st.integers(0, 255))
    sources = draw(_some(st.one_of(address, st.sampled_from(["198.19.0.0/16", "11.0.0.0/8"])), 0, 3)) if opens else ()
    lists = draw(_some(_id("pl"), 0, 2)) if opens else ()
    return {
        "ssh_access": "port" if opens else "session-manager",
        "ssh_cidr": (*sources, "0.0.0.0/0") if anywhere else sources,
        "ssh_prefix_lists": lists,
        "ssh_from_anywhere": anywhere,
        "vpc_cidr": f"10.{draw(st.integers(0, 255))}.{third}.0/{length}",
        "availability_zones": zones,
        "zones": () if exists else draw(st.sampled_from([(), ("us-east-1c", "us-east-1b")[:zones]])),
        "nat_gateways": "one" if exists else draw(st.sampled_from(["one", "one-per-zone"])),
        "vpc_endpoints": draw(st.sampled_from([(), (S3_ENDPOINT,)]))
        if exists
        else draw(_some(st.sampled_from(ENDPOINTS), 0, len(ENDPOINTS))),
        "flow_logs": draw(st.sampled_from(["off", "log-group", "arn:aws:s3:::my-flow-logs/here"])),
        "vpc_id": draw(_id("vpc")) if exists else "",
        "public_subnet_ids": draw(_some(_id("subnet", "a"), 1, 2)) if exists and opens else (),
        "private_subnet_ids": draw(_some(_id("subnet", "b"), zones, zones)) if exists else (),
        "room": room,
    }


def _compute(draw: Draw) -> Values:
    unknown, efa = draw(_RARELY), draw(_RARELY)
    wanted = "efa" if efa else draw(st.sampled_from(["any", "disks", "gpus", "any"]))
    worker = draw(st.sampled_from(UNKNOWN_TYPES if unknown and not efa else _types_with(wanted)))
    kind = find(worker)
    bought = draw(st.sampled_from(["on-demand", "on-demand", "spot", "reservation", "block", "group"]))
    others = () if bought in ("reservation", "block") or kind is None else _alternatives(draw, kind, efa=efa)
    kinds = [found for found in map(find, (worker, *others)) if found]
    clustered = bought != "block" and all("cluster" in each.placements for each in kinds)
    disks = bool(kinds) and all(each.store_disks for each in kinds)
    if efa and bought != "block" and not clustered:
        efa = False
    workers = draw(st.integers(0, 12))
    update = draw(st.sampled_from(["keep", "rolling"]))
    reservation = {"reservation": _id("cr"), "block": _id("cr")}.get(
        bought, st.just("arn:aws:resource-groups:us-east-1:123456789012:group/mine")
    )
    rebalanced = bought == "spot" and draw(_BOTH)
    commands = draw(_some(st.sampled_from(["install_package mesa-libGL libgl1", "echo $(uname -r)"]), 0, 2))
    return {
        "key_name": draw(_TEXT.filter(lambda text: text == text.strip())),
        "workers": workers,
        "worker_instance_type": worker,
        "worker_alternatives": others,
        "allow_unknown_instance_types": unknown,
        "placement_group": clustered and draw(_RARELY),
        "spot": bought == "spot",
        "on_demand_workers": draw(st.integers(0, max(1, workers))) if bought == "spot" else 0,
        "spot_allocation": draw(st.sampled_from(SPOT_ALLOCATIONS)) if bought == "spot" else SPOT_ALLOCATIONS[0],
        "capacity_rebalance": rebalanced,
        "on_demand_allocation": draw(st.sampled_from(ON_DEMAND_ALLOCATIONS)) if others else ON_DEMAND_ALLOCATIONS[0],
        "capacity_reservation": draw(reservation) if bought in ("reservation", "block", "group") else "",
        "capacity_block": bought == "block",
        "efa": efa,
        "scratch_mount": draw(st.sampled_from(["", "/mnt/scratch", "/scratch"])) if disks else "",
        "termination_notice_s": draw(st.sampled_from([30, 600, 7200] if rebalanced else [0, 30, 600, 7200])),
        "boot_commands": commands,
        "ready_timeout_min": draw(st.integers(5 if commands else 1, 60 if update == "rolling" else 720)),
        "capacity_policy": f"at-least {draw(st.integers(1, workers))}" if workers and draw(_BOTH) else "all",
        "update_policy": update,
        "update_batch": draw(st.integers(1, 100)),
        **_images(draw, worker),
    }


def _alternatives(draw: Draw, first: InstanceType, *, efa: bool) -> tuple[str, ...]:
    def alike(other: InstanceType) -> bool:
        layouts = [(each.efa_interfaces, each.efa_first_card) for each in (first, other)]
        same = (first.architectures, first.gpus, first.gpu_name) == (other.architectures, other.gpus, other.gpu_name)
        return same and other.name != first.name and (not efa or layouts[0] == layouts[1])

    family = first.name.partition(".")[0][:2]
    found = [kind for kind in map(find, usable_types()) if kind and kind.name.startswith(family) and alike(kind)]
    if not found or not draw(_BOTH):
        return ()
    return tuple(draw(_some(st.sampled_from([kind.name for kind in found]), 1, min(3, len(found)))))


def _images(draw: Draw, worker: str) -> Values:
    """Draw both images and the volumes created from them; one user logs in to both."""
    master = draw(st.sampled_from(["t3.medium", "m5.large", "c5.large"]))
    types = {"worker": worker, "master": master}
    found: Values = {"master_instance_type": master}
    ubuntu = draw(_RARELY) and _runs_ubuntu(worker)
    for role, name in types.items():
        unknown = not images.default(find(name))
        how = (
            "ubuntu"
            if ubuntu
            else draw(st.sampled_from(["parameter", "id"] if unknown else ["", "", "parameter", "id"]))
        )
        parameter = {"parameter": "/my/image", "ubuntu": UBUNTU}.get(how, "")
        found[f"{role}_image_parameter"] = parameter
        found[f"{role}_image_id"] = draw(_id("ami")) if how == "id" else ""
        found[f"{role}_root_device"] = (
            draw(st.sampled_from(["/dev/sda1", "/dev/xvda"])) if how == "id" or draw(_RARELY) else ""
        )
        least = 8 if how == "id" else images.smallest_volume_gib(images.choose(parameter, name))
        found |= {f"{role}_volume_{key}": value for key, value in _volume(draw, least).items()}
    needed = bool(found["worker_image_id"] or found["master_image_id"])
    found["login_user"] = draw(st.sampled_from(["ec2-user", "ubuntu", "ops"])) if needed or draw(_RARELY) else ""
    return found


def _runs_ubuntu(name: str) -> bool:
    kind = find(name)
    return kind is not None and not kind.gpus and "x86_64" in kind.architectures


def _volume(draw: Draw, least_gib: int) -> Values:
    gib = draw(st.integers(least_gib, 2000))
    iops = draw(st.one_of(st.just(3000), st.integers(3000, max(3000, min(80000, gib * 500)))))
    return {
        "gib": gib,
        "iops": iops,
        "mib_s": draw(st.one_of(st.just(125), st.integers(125, min(2000, iops // 4)))),
    }


_NO_LUSTRE: Final[Values] = {
    "fsx_capacity_gib": 0,
    "fsx_deployment": "SCRATCH_2",
    "fsx_throughput": 0,
    "fsx_compression": False,
    "fsx_mount": "/mnt/fsx",
    "fsx_s3": "",
    "fsx_export": False,
}


def _lustre(draw: Draw) -> Values:
    if not draw(_BOTH):
        return dict(_NO_LUSTRE)
    deployment = draw(st.sampled_from(list(FSX_THROUGHPUTS)))
    linked = draw(st.sampled_from(["", "s3://records", "s3://records/imagenet/2012"]))
    return {
        "fsx_capacity_gib": draw(st.sampled_from([1200, 2400, 4800])),
        "fsx_deployment": deployment,
        "fsx_throughput": draw(st.sampled_from(FSX_THROUGHPUTS[deployment])),
        "fsx_compression": draw(_BOTH),
        "fsx_mount": draw(st.sampled_from(["/mnt/fsx", "/data/records"])),
        "fsx_s3": linked,
        "fsx_export": bool(linked) and draw(_BOTH),
    }


def _storage(draw: Draw) -> Values:
    exists = draw(_RARELY)
    throughput = "bursting" if exists else draw(st.sampled_from(["bursting", "elastic", "provisioned"]))
    infrequent = 0 if exists else draw(st.sampled_from(EFS_DAYS))
    later = [days for days in EFS_DAYS if days > infrequent] if throughput == "elastic" and infrequent else []
    versions = draw(_BOTH)
    key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    return {
        "efs_mount": draw(st.sampled_from(["/mnt/efs", "/shared", "/mnt/a/b_c-1"])),
        "file_system_id": draw(_id("fs")) if exists else "",
        "efs_throughput": throughput,
        "efs_throughput_mibps": draw(st.integers(1, 3414)) if throughput == "provisioned" else 0,
        "efs_performance": "generalPurpose"
        if exists or throughput == "elastic"
        else draw(st.sampled_from(["generalPurpose", "maxIO"])),
        "efs_infrequent_after_days": infrequent,
        "efs_archive_after_days": draw(st.sampled_from([0, *later])),
        "efs_backup": not exists and draw(_BOTH),
        "bucket_versioning": versions,
        "bucket_expire_versions_days": draw(st.integers(0, 3650)) if versions else 0,
        "bucket_expire_runs_days": draw(st.integers(0, 3650)),
        "data_buckets": draw(_some(st.sampled_from(["records", "imagenet-2012", "a.b.c"]), 0, 2)),
        "checkpoint_buckets": draw(_some(st.sampled_from(["records", "checkpoints", "a.b.c"]), 0, 2)),
        "wheelhouse": draw(st.sampled_from(["", "s3://records/wheels", "s3://wheels", "https://host/w", "/mnt/w"])),
        "retain_data": draw(_BOTH),
        "kms_key": draw(st.sampled_from(["", "create", key])),
    }


def _limits(draw: Draw, compute: Values) -> Values:
    idle = draw(st.sampled_from([0, 10, 30, 1430]))
    needs_percent = idle and find(compute["worker_instance_type"]) is None
    percent = draw(st.floats(1, 100)) if idle and (needs_percent or draw(_BOTH)) else 0.0
    least_hours = max(0.5, math.floor(compute["ready_timeout_min"] / 60 * 12 + 1) / 12)
    budget = draw(st.sampled_from([0.0, 0.5, 500.0]))
    emails = tuple(draw(_EMAILS)) if budget else ()
    boundary = "arn:aws:iam::123456789012:policy/team/boundary"
    tags = st.dictionaries(
        st.sampled_from(["team", "Cost Center", "a:b/c", "k" * 127]), st.sampled_from(["42", "x=y @z"])
    )
    return {
        "permissions_boundary": draw(st.sampled_from(["", boundary])),
        "termination_protection": draw(_BOTH),
        "protect_instances": not compute["spot"] and draw(_BOTH),
        "tags": tuple(f"{key}={value}" for key, value in draw(tags).items()),
        "idle_minutes": idle,
        "idle_cpu_percent": percent,
        "then_stop": draw(_BOTH),
        "max_replacements_per_hour": draw(st.sampled_from([0, 1, 100])),
        "max_hours": draw(st.sampled_from([0.0, least_hours, 24.0, 168.0])),
        "budget_usd": budget,
        "budget_scope": draw(st.sampled_from(["account", "cluster"])),
        "budget_emails": emails,
        "budget_stops_workers": not emails or draw(_BOTH),
    }


def _observability(draw: Draw) -> Values:
    alarms = draw(_BOTH)
    topic = "arn:aws:sns:us-east-1:123456789012:pages"
    return {
        "node_logs": draw(_BOTH),
        "log_retention_days": draw(st.sampled_from(RETENTIONS)),
        "node_metrics": draw(_BOTH),
        "metrics_interval_s": draw(st.sampled_from([1, 10, 60, 3600])),
        "dashboard": draw(_BOTH),
        "alarms": alarms,
        "alarm_emails": tuple(draw(_EMAILS)) if alarms else (),
        "alarm_topic": draw(st.sampled_from(["", topic])) if alarms else "",
    }

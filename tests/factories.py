"""Build nodes, instances, stacks, states and specs for tests. The defaults are valid and every field can be changed.

Names, addresses and instance ids follow from one index: worker 3 is deeplearning-worker3, 10.0.1.3 and i-00000003, both
as a node and as an EC2 instance. A test passes the fields that it is about.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final

from agent.runs import liveness
from agent.runs.stored_state import State
from agent.spec.nodes import MASTER_NAME, WORKER_PREFIX, Node
from agent.spec.run import RunSpec
from cluster.aws.inventory import Instance, Inventory
from cluster.aws.stack import Stack

AGENT: Final = "a" * 16
PAYLOAD: Final = "0123456789abcdef"
PROGRAM: Final = "fedcba9876543210"
"""Names of the pushed trees."""
MASTER_ID: Final = "i-000000ff"
MASTER_ADDRESS: Final = "10.0.0.5"
LAUNCHED: Final = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)


def make_node(index: int = 1, /, **changes: Any) -> Node:
    """Return the worker with this index."""
    values = {
        "name": f"{WORKER_PREFIX}{index}", "address": f"10.0.1.{index}", "instance_id": f"i-{index:08x}", "slots": 1,
        "interface": "ens5", "zone": "us-east-1a", "kind": "x86_64",
    }  # fmt: skip
    return Node(**{**values, **changes})


def make_master(**changes: Any) -> Node:
    """Return the master."""
    return make_node(**{"name": MASTER_NAME, "address": MASTER_ADDRESS, "instance_id": MASTER_ID, **changes})


def make_nodes(count: int, /, **changes: Any) -> tuple[Node, ...]:
    """Return workers 1 to `count`, each with these changes."""
    return tuple(make_node(index, **changes) for index in range(1, count + 1))


def nodes_text(nodes: Iterable[Node]) -> str:
    """Return the nodes file for these nodes."""
    return "".join(f"{n.name} {n.address} {n.instance_id} {n.slots} {n.interface} {n.zone} {n.kind}\n" for n in nodes)


def make_instance(index: int = 1, /, **changes: Any) -> Instance:
    """Return the EC2 instance of a running worker."""
    values = {
        "id": f"i-{index:08x}", "role": "worker", "state": "running", "lifecycle": "InService", "type": "c5.2xlarge",
        "private_ip": f"10.0.1.{index}", "public_ip": "", "zone": "us-east-1a", "launched": LAUNCHED,
    }  # fmt: skip
    return Instance(**{**values, **changes})


def make_master_instance(**changes: Any) -> Instance:
    """Return the EC2 instance of the running master."""
    values = {
        "id": MASTER_ID, "role": "master", "type": "t3.medium", "private_ip": MASTER_ADDRESS, "public_ip": "198.18.1.2",
    }  # fmt: skip
    return make_instance(**{**values, **changes})


def make_stack(**changes: Any) -> Stack:
    """Return a created stack that allows up to 16 workers."""
    values = {
        "name": "deepcdk", "status": "CREATE_COMPLETE", "master_group": "masters", "worker_group": "workers",
        "efs_mount": "/mnt/efs", "bucket": "bucket", "login_user": "ec2-user", "max_workers": 16,
        "account": "123456789012",
    }  # fmt: skip
    return Stack(**{**values, **changes})


def make_inventory(workers: int = 2, /, **changes: Any) -> Inventory:
    """Return a cluster with this number of desired and running workers."""
    instances = tuple(make_instance(index) for index in range(1, workers + 1))
    return Inventory(**{"stack": make_stack(), "desired_workers": workers, "instances": instances, **changes})


def make_spec(**changes: Any) -> RunSpec:
    """Return the spec of a run of the recipe digits on two workers with 4 slots each."""
    values = {
        "run_id": "20261120-121314-digits-ab12", "efs_mount": "/mnt/efs", "agent": AGENT, "payload": PAYLOAD,
        "command": ("-m", "payload.train", "--recipe", "digits"), "hosts": make_nodes(2, slots=4), "interface": "ens5",
    }  # fmt: skip
    return RunSpec(**{**values, **changes})


def make_program_spec(**changes: Any) -> RunSpec:
    """Return the spec of a run of a user's train.py."""
    return make_spec(**{"payload": "", "program": PROGRAM, "command": ("train.py",), **changes})


def make_state(**changes: Any) -> State:
    """Return the state of the running run `one`. This process is its supervisor if it holds the run's lock."""
    values = {"run_id": "one", "state": "running", "started": 1.0, "updated": 2.0, "hosts": ("deeplearning-worker1",)}
    return State(**{**values, **changes})


def abandon(*run_ids: str) -> None:
    """Leave the run locks as a killed supervisor leaves them."""
    for run_id in run_ids:
        if not liveness.is_held(run_id):
            liveness.hold(run_id)
        liveness.let_go(run_id)

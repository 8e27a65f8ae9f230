"""Time a worker group's growth, run on the laptop of an embedded cloud: python benchmarks/hosts_up.py COUNT.

The clock runs from SetDesiredCapacity until each new worker's sshd has greeted a connection made from the master's side
of the network. Prints the seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import boto3

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stacks.config import ROLE_TAG, WORKER


def main(count: int) -> int:
    """Grow the group and wait; print the time taken."""
    outputs = boto3.client("cloudformation").describe_stacks()["Stacks"]
    names = {o["OutputKey"]: o["OutputValue"] for stack in outputs for o in stack.get("Outputs", [])}
    ec2, autoscaling = boto3.client("ec2"), boto3.client("autoscaling")
    began = time.monotonic()
    autoscaling.set_desired_capacity(AutoScalingGroupName=names["WorkerGroupName"], DesiredCapacity=count)
    filters = [{"Name": f"tag:{ROLE_TAG}", "Values": [WORKER]}, {"Name": "instance-state-name", "Values": ["running"]}]
    waiting: set[str] = set()
    deadline = began + 120
    while time.monotonic() < deadline:
        pages = ec2.describe_instances(Filters=filters)["Reservations"]
        found = {instance["InstanceId"] for page in pages for instance in page["Instances"]}
        waiting = {name for name in found if "BEGIN SSH HOST KEY KEYS" not in console(ec2, name)}
        if len(found) == count and not waiting:
            print(f"{time.monotonic() - began:.2f}")
            return 0
        time.sleep(0.05)
    print(json.dumps({"waiting": sorted(waiting)}), file=sys.stderr)
    return 1


def console(ec2: object, instance_id: str) -> str:
    """Return what an instance has written to its console."""
    return str(ec2.get_console_output(InstanceId=instance_id, Latest=True).get("Output", ""))  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

"""Read the consoles of instances over the EC2 API. They show host keys and the progress of the boot."""

from __future__ import annotations

import datetime
from typing import Final

from cluster.aws.client import Aws, IgnoredCodes, entries
from cluster.aws.errors import aws_errors
from cluster.errors import AwsError
from stacks.config import CLUSTER_TAG

CONSOLE_LINES: Final = 8

BOOT_PREFIX: Final = "deepcdk: "
"""Prefix of the lines that the boot script writes."""


def read_console(aws: Aws, instance_id: str) -> str:
    """Return the console output of an instance so far; "" for an instance that EC2 does not know. Raises AwsError.

    EC2 may find a new instance by its id only some seconds after its group lists it (EC2 developer guide, "Eventual
    consistency in the Amazon EC2 API").
    """
    with aws_errors(f"reading the console of {instance_id}"), IgnoredCodes("InvalidInstanceID.NotFound"):
        ec2 = aws.client("ec2")
        with IgnoredCodes("UnsupportedOperation", "InvalidParameterCombination"):
            return str(ec2.get_console_output(InstanceId=instance_id, Latest=True).get("Output") or "")
        return str(ec2.get_console_output(InstanceId=instance_id).get("Output") or "")  # Xen: no Latest
    return ""


def last_boot_messages(aws: Aws, name: str, since: datetime.datetime) -> list[str]:
    """Return a line for each instance of the cluster `name` that was launched since then: its id and its last three
    boot messages.

    Terminated instances are included. Instances without a message are left out. Raises AwsError.
    """
    of_cluster = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [name]}]
    with aws_errors(f"looking for instances of {name}"):
        reservations = entries(aws.client("ec2"), "describe_instances", "Reservations", Filters=of_cluster)
    ids = [i["InstanceId"] for each in reservations for i in each["Instances"] if i["LaunchTime"] >= since]
    found = []
    for id in sorted(ids):
        lines = [line.partition(BOOT_PREFIX)[2] for line in read_console(aws, id).splitlines() if BOOT_PREFIX in line]
        if lines:
            found.append(f"{id}: {'; '.join(dict.fromkeys(lines[-3:]))}")
    return found


def last_console_lines(aws: Aws, instance_id: str) -> str:
    """Return the last CONSOLE_LINES lines of an instance's console as one text, for a message about this instance.

    If the console is empty or cannot be read, the text says so in parentheses, because the message must not be lost.
    """
    try:
        lines = read_console(aws, instance_id).splitlines()[-CONSOLE_LINES:]
    except AwsError as error:
        return f"(the console cannot be read: {error.what})"
    return "\n".join(lines) or "(the console is empty)"

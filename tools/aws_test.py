"""Run the end-to-end tests marked `aws` on your AWS account, and destroy what they deployed.

    make test-aws SSH_CIDR=198.51.100.7/32        (your own public address)
    .venv/bin/python -m tools.aws_test --ssh-cidr 198.51.100.7/32 [--region eu-west-1] [--yes]

It shows the account and the price, asks, and deploys a cluster with its own name, key pair and tag: a small master and
two small workers. The tests are those that `make test` runs on the embedded cloud. Then it destroys the cluster, also
after a failure or Ctrl-C, lists what is left, and writes a JUnit XML file.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.aws.client import Aws, aws_errors
from cluster.aws.stack import describe_stack
from cluster.deploy.estimate import describe_deployment
from cluster.errors import DeepcdkError
from cluster.session import Session
from stacks.config import ConfigError
from tools import demo

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import FilterTypeDef

ACCOUNT: Final = "DEEPCDK_AWS_TEST"
"""Environment variable with the cluster's settings as JSON. If it is set, tests marked `aws` run on the account."""
TAG: Final = "deepcdk-test"
"""Key of the tag on each resource. Its value is the cluster's name."""
MAX_HOURS: Final = 3
"""All workers are stopped after this time, even if this machine is lost."""
GONE: Final = ("terminated", "shutting-down", "deleted", "deleting")


def settings(name: str, ssh_cidr: str) -> dict[str, str]:
    """Return the settings of the test cluster. Without `ssh_cidr` it has no open port, and uses Session Manager."""
    return {
        "name": name,
        "key_name": name,
        "tags": f"{TAG}={name}",
        "workers": "2",
        "max_workers": "16",
        "worker_instance_type": "c6i.xlarge",
        "max_hours": str(MAX_HOURS),
        "retain_data": "false",
        **({"ssh_cidr": ssh_cidr} if ssh_cidr else {"ssh_access": "session-manager"}),
    }


def overrides(given: Mapping[str, str]) -> list[str]:
    """Return settings as arguments of `fab`."""
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


def confirm(name: str, *, yes: bool, ask: Callable[[str], str] = input) -> None:
    """Ask for the cluster's name. Raises DeepcdkError if the answer is different or there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise DeepcdkError("there is no terminal to ask on", remedy="give --yes")
    try:
        answer = ask(f"Type {name} to continue: ")
    except EOFError:  # Ctrl-D
        answer = ""
    if answer.strip() != name:
        raise DeepcdkError("Aborted.")


def find_left(aws: Aws, name: str) -> list[str]:
    """List the remaining resources of a test cluster that cost money, one line for each."""
    tagged: list[FilterTypeDef] = [{"Name": f"tag:{TAG}", "Values": [name]}]
    with aws_errors("looking for what is left"):
        ec2 = aws.client("ec2")
        reservations = ec2.describe_instances(Filters=tagged)["Reservations"]
        gateways = ec2.describe_nat_gateways(Filters=tagged)["NatGateways"]
        found = [
            *((each["InstanceId"], each["State"]["Name"]) for page in reservations for each in page["Instances"]),
            *((each["VolumeId"], each["State"]) for each in ec2.describe_volumes(Filters=tagged)["Volumes"]),
            *((each["NatGatewayId"], each["State"]) for each in gateways),
            *((each["AllocationId"], "allocated") for each in ec2.describe_addresses(Filters=tagged)["Addresses"]),
        ]
    stack = describe_stack(aws, name)
    found += [(f"stack {name}", stack["StackStatus"])] if stack and stack["StackStatus"] != "DELETE_COMPLETE" else []
    return [f"{what}: {state}" for what, state in found if state not in GONE]


def destroy(aws: Aws, name: str, words: Sequence[str]) -> bool:
    """Destroy the cluster and its key pair, print the remaining resources, and return whether there are none."""
    if describe_stack(aws, name) is not None:
        command = ["fab", "down", "--yes", "--force", *words]
        subprocess.run(command, cwd=demo.ROOT, env=demo.environment(), check=False)
    with aws_errors(f"deleting key pair {name}"):
        aws.client("ec2").delete_key_pair(KeyName=name)
    left = find_left(aws, name)
    print("\n".join(left) or "nothing with the test's tag is left", flush=True)
    if left:
        print(f"to repeat: fab down --set name={name}; look into the console too", flush=True)
    return not left


def run(ssh_cidr: str, into: Path, *, yes: bool) -> int:
    """Deploy the cluster, run the tests and destroy it; return the exit status."""
    name = f"{TAG}-{secrets.token_hex(2)}"
    given = settings(name, ssh_cidr)
    session = Session(demo.ROOT, [f"{key}={value}" for key, value in given.items()], deploying=True)
    with aws_errors("asking for your identity"):
        caller = session.aws.client("sts").get_caller_identity()
    print(f"account {caller['Account']}, region {session.aws.region}, as {caller['Arn']}")
    print(describe_deployment(session))
    print(f"It takes about 40 minutes on AWS (an estimate). All workers are stopped after {MAX_HOURS} hours.")
    confirm(name, yes=yes)
    report = into.resolve() / f"{name}.xml"
    tests = [sys.executable, "-m", "pytest", "-m", "aws", "tests/e2e", "--timeout=0", f"--junitxml={report}"]
    try:
        environment = {**os.environ, ACCOUNT: json.dumps(given)}
        status = subprocess.run(tests, cwd=demo.ROOT, env=environment, check=False).returncode
    except KeyboardInterrupt:
        print("\nInterrupted. The cluster is destroyed now.", flush=True)
        status = 130
    finally:
        clean = destroy(session.aws, name, overrides(given))
    print(f"results: {report}")
    return status or (0 if clean else 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Return 0 if all tests passed and no resources remain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ssh-cidr", default="", help="your address as a network; default: Session Manager, no port")
    parser.add_argument("--region", default="", help="default: AWS_REGION, or the region in your profile")
    parser.add_argument("--into", type=Path, default=demo.ROOT / "aws-test", help="folder for the JUnit XML file")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options = parser.parse_args(argv)
    if options.region:
        os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = options.region
    try:
        return run(options.ssh_cidr, options.into, yes=options.yes)
    except (DeepcdkError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

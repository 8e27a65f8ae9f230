"""`fab up` and `fab doctor` in a new account with 16 vCPUs, as served by the embedded cloud."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import boto3
import pytest

PROJECT = Path(__file__).resolve().parents[3]
SSH = "--set=ssh_cidr=198.51.100.7/32"


class NewAccount:
    """The account, and a laptop with an SSH key."""

    def __init__(self, served: dict[str, str], home: Path) -> None:
        self.served, self.home = served, home

    def fab(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a task without a terminal."""
        variables = {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "AWS_ACCESS_KEY_ID": self.served["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": self.served["secret_access_key"],
            "AWS_REGION": self.served["region"],
            "AWS_ENDPOINT_URL": self.served["endpoint"],
            "COLUMNS": "1000",
        }
        command = [str(Path(sys.executable).with_name("fab")), *words]
        return subprocess.run(
            command, cwd=PROJECT, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    def client(self, service: str) -> Any:
        """Return a client of the account."""
        session: Any = boto3.Session(self.served["access_key_id"], self.served["secret_access_key"])
        return session.client(service, region_name=self.served["region"], endpoint_url=self.served["endpoint"])

    def contents(self) -> dict[str, int]:
        """Return the number of resources of each kind in the account."""
        ec2 = self.client("ec2")
        return {
            "stacks": len(self.client("cloudformation").list_stacks()["StackSummaries"]),
            "key pairs": len(ec2.describe_key_pairs()["KeyPairs"]),
            "VPCs": len(ec2.describe_vpcs()["Vpcs"]),
            "buckets": len(self.client("s3").list_buckets()["Buckets"]),
        }


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewAccount]:
    """Serve the API of an embedded cloud with 16 vCPUs."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ssh").mkdir(mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh" / "id_ed25519")], check=True)
    command = [sys.executable, "-m", "localcloud", "api", "--vcpus", "16"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield NewAccount(json.loads(server.stdout.readline()), home)
        server.stdin.close()


@pytest.mark.parametrize("flags", [("--yes",), (), ("--plan",)], ids=["yes", "asking", "plan"])
def test_up_is_rejected_with_fix_and_creates_nothing(account: NewAccount, flags: tuple[str, ...]) -> None:
    before = account.contents()
    done = account.fab("up", *flags, SSH)
    assert done.returncode == 1
    assert "stack deepcdk would fail in this account, so nothing was created" in done.stderr
    assert "16 vCPUs, 0 used by other instances; t3.medium, c5.2xlarge need 18" in done.stderr
    assert "do: set workers = 1, or request an increase in Service Quotas: https://" in done.stderr
    assert "18 vCPUs or more" in done.stderr
    assert account.contents() == before


def test_force_continues_with_a_warning(account: NewAccount) -> None:
    before = account.contents()
    done = account.fab("up", "--force", SSH)
    assert done.returncode == 1
    assert "warning: vCPU quota: " in done.stderr and "t3.medium, c5.2xlarge need 18" in done.stderr
    assert "nothing was created" not in done.stderr
    assert "There is no terminal on which to ask" in done.stderr
    assert account.contents() == before


def test_families_without_quota_in_new_account_are_rejected(account: NewAccount) -> None:
    done = account.fab("up", "--yes", SSH, "--set=worker_instance_type=p5.48xlarge", "--set=workers=1")
    assert done.returncode == 1
    assert "Running On-Demand P instances: 0 vCPUs, 0 used by other instances; p5.48xlarge need 192" in done.stderr
    spot = account.fab("up", "--yes", SSH, "--set=spot=true", "--set=workers=3")
    assert spot.returncode == 1
    assert "Spot Instance Requests: 16 vCPUs, 0 used by other instances; c5.2xlarge need 24" in spot.stderr


def test_cluster_that_fits_is_confirmed_with_warning_about_growth(account: NewAccount) -> None:
    done = account.fab("up", SSH, "--set=workers=1")
    assert "warning: vCPU quota: " in done.stderr
    assert "set a smaller max_workers" in done.stderr
    assert "There is no terminal on which to ask" in done.stderr
    fits = account.fab("up", SSH, "--set=workers=1", "--set=max_workers=1")
    assert "warning: vCPU quota" not in fits.stderr
    assert "zones: us-east-1a" in fits.stdout


@dataclasses.dataclass(frozen=True, kw_only=True)
class Existing:
    """Existing resources of a large account, by the names of keys in cdk.json."""

    account: NewAccount
    vpc_id: str
    subnets: tuple[str, ...]
    file_system_id: str
    permissions_boundary: str
    prefix_list: str


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Existing]:
    """Serve an account without limits to a user with only the documented policies."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ssh").mkdir(mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh" / "id_ed25519")], check=True)
    with subprocess.Popen([sys.executable, "-m", "localcloud", "api"], stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        served = json.loads(server.stdout.readline())
        admin = NewAccount(served, home)
        iam, ec2 = admin.client("iam"), admin.client("ec2")
        iam.create_user(UserName="someone")
        for name in ("user", "options"):
            text = (PROJECT / "docs" / "policies" / f"{name}.json").read_text(encoding="utf-8")
            iam.put_user_policy(UserName="someone", PolicyName=name, PolicyDocument=text)
        key = iam.create_access_key(UserName="someone")["AccessKey"]
        own = {**served, "access_key_id": key["AccessKeyId"], "secret_access_key": key["SecretAccessKey"]}
        vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
        subnets = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.7.{each}.0/24")["Subnet"]["SubnetId"] for each in (1, 2)]
        given = {"PrefixListName": "office", "MaxEntries": 5, "AddressFamily": "IPv4"}
        allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
        yield Existing(
            account=NewAccount(own, home),
            vpc_id=vpc,
            subnets=tuple(subnets),
            file_system_id=admin.client("efs").create_file_system(CreationToken="a", Encrypted=True)["FileSystemId"],
            permissions_boundary=iam.create_policy(PolicyName="b", PolicyDocument=json.dumps(allow))["Policy"]["Arn"],
            prefix_list=ec2.create_managed_prefix_list(**given)["PrefixList"]["PrefixListId"],
        )
        server.stdin.close()


CONFIGURATIONS: Final = {
    "default": (SSH,),
    "existing resources": (
        SSH,
        *("--set=vpc_id={0.vpc_id}", "--set=vpc_cidr=10.7.0.0/16", "--set=file_system_id={0.file_system_id}"),
        *("--set=public_subnet_ids={0.subnets[0]}", "--set=private_subnet_ids={0.subnets[1]}"),
        *("--set=permissions_boundary={0.permissions_boundary}", "--set=ssh_prefix_lists={0.prefix_list}"),
    ),
    "reservation and budget": (
        *(SSH, "--set=capacity_reservation=cr-0123456789abcdef0", "--set=budget_usd=100"),
        *("--set=budget_emails=me@example.com", "--set=worker_instance_type=p5.48xlarge", "--set=efa=true"),
    ),
    "without a port, in two zones": (
        *("--set=ssh_access=session-manager", "--set=availability_zones=2", "--set=kms_key=create"),
    ),
    "spot of several types": (
        *(
            SSH,
            "--set=spot=true",
            "--set=worker_instance_type=g5.xlarge",
            "--set=worker_alternatives=g6.xlarge,c5.large",
        ),
    ),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_documented_policies_suffice_for_the_doctor(person: Existing, name: str) -> None:
    done = person.account.fab("doctor", "--json", *(each.format(person) for each in CONFIGURATIONS[name]))
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert [each for each in findings if each["state"] == "unknown"] == []


def test_doctor_has_no_unknown_line(account: NewAccount) -> None:
    done = account.fab("doctor", "--json", SSH)
    findings = json.loads(done.stdout)["findings"]
    assert [each for each in findings if each["state"] == "unknown"] == []
    assert [each["check"] for each in findings if each["state"] == "fail"] == ["vCPU quota"]

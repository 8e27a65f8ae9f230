"""Missing key pairs are rejected with EC2's messages."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from api.templates import Client

KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f someone"


def test_first_unknown_name_is_reported(client: Client) -> None:
    client("ec2").import_key_pair(KeyName="there", PublicKeyMaterial=KEY)
    try:
        with pytest.raises(ClientError) as caught:
            client("ec2").describe_key_pairs(KeyNames=["there", "gone"])
        assert caught.value.response["Error"] == {
            "Code": "InvalidKeyPair.NotFound",
            "Message": "The key pair 'gone' does not exist",
        }
        (found,) = client("ec2").describe_key_pairs(KeyNames=["there"])["KeyPairs"]
        assert found["KeyName"] == "there"
    finally:
        client("ec2").delete_key_pair(KeyName="there")


def test_dry_run_creates_nothing(client: Client) -> None:
    ec2 = client("ec2")
    before = len(ec2.describe_vpcs()["Vpcs"])
    for call in (ec2.create_vpc, ec2.create_subnet, ec2.allocate_address, ec2.create_security_group):
        given = {"CidrBlock": "10.9.0.0/16"} if call == ec2.create_vpc else {}
        given |= {"VpcId": "vpc-0123456789abcdef0", "CidrBlock": "10.9.0.0/24"} if call == ec2.create_subnet else {}
        given |= {"GroupName": "a", "Description": "a"} if call == ec2.create_security_group else {}
        with pytest.raises(ClientError) as caught:
            call(DryRun=True, **given)
        assert caught.value.response["Error"]["Code"] == "DryRunOperation"
    assert len(ec2.describe_vpcs()["Vpcs"]) == before

"""Key pairs that are not there are refused in EC2's words."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from api.templates import Client

KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f someone"


def test_the_first_unknown_name_is_named(client: Client) -> None:
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

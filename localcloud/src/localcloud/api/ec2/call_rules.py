"""Requests that EC2 rejects: too many filter values, malformed ids, reserved tag keys, key pairs, and dry runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response
from moto.ec2.responses.key_pairs import KeyPairs

from localcloud.api.loopback import ACCESS_KEY
from localcloud.api.monkeypatch import around, first
from localcloud.api.parameter_checks import refusal

_MAX_FILTER_VALUES: Final = 200
_IDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "InstanceId": ("i", "InvalidInstanceID.Malformed", 'Invalid id: "{id}"'),
    "ImageId": ("ami", "InvalidAMIID.Malformed", 'Invalid id: "{id}" (expecting "ami-...")'),
    # Id of a security group or a placement group.
    "GroupId": ("(sg|pg)", "InvalidGroupId.Malformed", 'Invalid id: "{id}" (expecting "sg-...")'),
    "VolumeId": ("vol", "InvalidParameterValue", "Value ({id}) for parameter volumeId is invalid."),
}
"""Prefix, error code and text by parameter, for ids whose error is in EC2's list of error codes."""
_RESERVED: Final = "aws:"
_CLOUDFORMATION: Final = "aws:cloudformation:"
_KEY_KINDS: Final = ("ssh-rsa", "ssh-ed25519")


@around(EC2Response, "call_action")
def _call_action(original: Any, self: Any) -> Any:
    try:
        check(self)
    except EC2ClientError as error:
        return refusal(self, error)
    return original(self)


def check(responses: Any) -> None:
    """Raise EC2's error for a request with too many filter values, a malformed id or a reserved tag key.

    A valid dry run is also rejected, with DryRunOperation, as in EC2. A dry run of RunInstances is left to moto. Only
    CloudFormation may set its own reserved tags.
    """
    parameters = responses._get_params()
    values = sum(len(each.get("Values") or ()) for each in parameters.get("Filters") or ())
    if values > _MAX_FILTER_VALUES:
        raise EC2ClientError(
            "FilterLimitExceeded",
            f"The maximum number of filter values specified on a single call is {_MAX_FILTER_VALUES}",
        )
    for name in _IDS:
        _check_ids(name, [parameters[name]] if isinstance(parameters.get(name), str) else [])
        _check_ids(name, parameters.get(f"{name}s") or [])
    ours = _CLOUDFORMATION if responses.get_access_key() == ACCESS_KEY else _RESERVED + "\0"
    for key in _tag_keys(parameters):
        if key.lower().startswith(_RESERVED) and not key.startswith(ours):
            raise EC2ClientError(
                "InvalidParameterValue", f"Tag keys starting with '{_RESERVED}' are reserved for internal use"
            )
    # A dry run creates nothing and is subject to no limit. moto executes some of them.
    if responses._get_action() != "RunInstances":  # As in EC2, moto checks more before DryRun.
        responses.error_on_dryrun()


def _check_ids(name: str, ids: list[str]) -> None:
    prefix, code, text = _IDS[name]
    for id in ids:
        if not re.fullmatch(rf"{prefix}-[0-9a-f]{{8,17}}", id):
            raise EC2ClientError(code, text.format(id=id))


def _tag_keys(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of all tags that a request sets, including tags in a launch template."""
    of_template = (parameters.get("LaunchTemplateData") or {}).get("TagSpecifications") or ()
    lists = [each.get("Tags") or () for each in (*(parameters.get("TagSpecifications") or ()), *of_template)]
    for tags in [*lists, parameters.get("Tags") or ()]:
        for tag in tags:
            yield str(tag.get("Key") or "")


@first(KeyPairs, "describe_key_pairs")
def _check_known(responses: Any) -> None:
    """Raise EC2's error for the first unknown key pair (hashicorp/vault-guides issue 260). moto's error names all."""
    for name in responses._get_param("KeyNames", []):
        if name not in responses.ec2_backend.key_pairs:
            raise EC2ClientError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")


@first(KeyPairs, "create_key_pair")
def _check_name(responses: Any) -> None:
    name = str(responses._get_param("KeyName"))
    if name != name.strip():
        raise EC2ClientError("InvalidParameterValue", f"Invalid value '{name}' for keyName. It should be trimmed")


@first(KeyPairs, "import_key_pair")
def _check_import(responses: Any) -> None:
    """Reject keys other than RSA and Ed25519, with the code in EC2's list of error codes. moto uses another code.

    Also reject a name with spaces at its start or end.
    """
    _check_name(responses)
    kind = bytes(responses._get_param("PublicKeyMaterial") or b"").split(maxsplit=1)
    if not kind or kind[0].decode("ascii", "replace") not in _KEY_KINDS:
        raise EC2ClientError("InvalidKey.Format", "Key is not in valid OpenSSH public key format")

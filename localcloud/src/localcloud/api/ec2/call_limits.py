"""What EC2 refuses in any action's parameters: too many filter values, malformed ids, reserved tag keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response

from localcloud.api.constraints import refusal
from localcloud.api.loopback import ACCESS_KEY
from localcloud.api.monkeypatch import replace

_MOST_FILTER_VALUES: Final = 200
_IDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "InstanceId": ("i", "InvalidInstanceID.Malformed", 'Invalid id: "{id}"'),
    "ImageId": ("ami", "InvalidAMIID.Malformed", 'Invalid id: "{id}" (expecting "ami-...")'),
    # Of security groups, and of placement groups.
    "GroupId": ("(sg|pg)", "InvalidGroupId.Malformed", 'Invalid id: "{id}" (expecting "sg-...")'),
    "VolumeId": ("vol", "InvalidParameterValue", "Value ({id}) for parameter volumeId is invalid."),
}
"""Prefix, error code and text by parameter, of those whose error EC2's list of error codes names."""
_RESERVED: Final = "aws:"
_CLOUDFORMATION: Final = "aws:cloudformation:"


def apply() -> None:
    """Correct moto."""
    original = EC2Response.call_action

    def call_action(self: Any) -> Any:
        try:
            check(self)
        except EC2ClientError as error:
            return refusal(self, error)
        return original(self)

    replace(EC2Response, "call_action", call_action)


def check(responses: Any) -> None:
    """Raise EC2's error for a request that it refuses whatever its action is."""
    parameters = responses._get_params()
    values = sum(len(each.get("Values") or ()) for each in parameters.get("Filters") or ())
    if values > _MOST_FILTER_VALUES:
        raise EC2ClientError(
            "FilterLimitExceeded",
            f"The maximum number of filter values specified on a single call is {_MOST_FILTER_VALUES}",
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


def _check_ids(name: str, ids: list[str]) -> None:
    prefix, code, text = _IDS[name]
    for id in ids:
        if not re.fullmatch(rf"{prefix}-[0-9a-f]{{8,17}}", id):
            raise EC2ClientError(code, text.format(id=id))


def _tag_keys(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of all tags that a request sets, those of what a launch template will make included."""
    of_template = (parameters.get("LaunchTemplateData") or {}).get("TagSpecifications") or ()
    lists = [each.get("Tags") or () for each in (*(parameters.get("TagSpecifications") or ()), *of_template)]
    for tags in [*lists, parameters.get("Tags") or ()]:
        for tag in tags:
            yield str(tag.get("Key") or "")

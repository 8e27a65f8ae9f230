"""What EC2 refuses in the descriptions of security groups and of their rules; moto takes any text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.security_groups import SecurityGroups

from localcloud.api.monkeypatch import replace

# AWS's rule, in the words of its own message; DescribeSecurityGroups' documentation has the same set.
_VALID: Final = re.compile(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}")
_SET: Final = (
    "Valid descriptions are strings less than 256 characters from the following set:  a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*"
)
_ACTIONS_ON_RULES: Final = (
    "authorize_security_group_ingress",
    "authorize_security_group_egress",
    "modify_security_group_rules",
    "update_security_group_rule_descriptions_ingress",
    "update_security_group_rule_descriptions_egress",
)

RULES: Final[Mapping[str, str]] = {
    "ec2:CreateSecurityGroup": "a description of EC2's characters",
    "ec2:AuthorizeSecurityGroupIngress": "descriptions of EC2's characters",
    "ec2:AuthorizeSecurityGroupEgress": "descriptions of EC2's characters",
    "ec2:ModifySecurityGroupRules": "descriptions of EC2's characters",
    "ec2:UpdateSecurityGroupRuleDescriptionsIngress": "descriptions of EC2's characters",
    "ec2:UpdateSecurityGroupRuleDescriptionsEgress": "descriptions of EC2's characters",
}
"""What is refused, by action; shown in docs/."""


def apply() -> None:
    """Correct moto."""
    _correct("create_security_group", _check_group)
    for action in _ACTIONS_ON_RULES:
        _correct(action, _check_rules)


def _correct(action: str, check: Callable[[dict[str, Any]], None]) -> None:
    """Check an action's parameters before moto carries it out, so that a refused request changes nothing."""
    original = getattr(SecurityGroups, action, None)

    def checked(self: Any) -> Any:
        check(self._get_params())
        return original(self)  # type: ignore[misc]  # `replace` has refused a moto without it

    replace(SecurityGroups, action, checked)


def _check_group(parameters: dict[str, Any]) -> None:
    """Raise EC2's error for the description of a group that breaks its rule."""
    description = str(parameters.get("Description", ""))
    if not description.isascii():
        raise _invalid(
            f"Value ({description}) for parameter GroupDescription is invalid. "
            "Character sets beyond ASCII are not supported."
        )
    if not _VALID.fullmatch(description):
        raise _invalid(f"Invalid security group description. {_SET}")


def _check_rules(parameters: dict[str, Any]) -> None:
    """Raise EC2's error for the description of a rule that breaks its rule."""
    if not all(_VALID.fullmatch(description) for description in _descriptions(parameters)):
        raise _invalid(f"Invalid rule description. {_SET}")


def _descriptions(value: Any) -> Iterator[str]:
    """Yield each `Description` at any depth of a request's parameters: each type of source has one."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from [str(each)] if key == "Description" else _descriptions(each)
    elif isinstance(value, list):
        for each in value:
            yield from _descriptions(each)


def _invalid(message: str) -> EC2ClientError:
    return EC2ClientError("InvalidParameterValue", message)

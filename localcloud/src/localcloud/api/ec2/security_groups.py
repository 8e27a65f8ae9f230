"""What EC2 refuses of security groups and their rules, in its words; moto takes any description."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError, InvalidPermissionDuplicateError
from moto.ec2.models.security_groups import SecurityGroupBackend
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


def apply() -> None:
    """Correct moto."""
    _correct("create_security_group", _check_group)
    for action in _ACTIONS_ON_RULES:
        _correct(action, _check_rules)
    for direction in ("ingress", "egress"):
        _name_duplicates(f"authorize_security_group_{direction}")


def _correct(action: str, check: Callable[[dict[str, Any]], None]) -> None:
    """Check an action's parameters before moto carries it out, so that a refused request changes nothing."""
    original = getattr(SecurityGroups, action, None)

    def checked(self: Any) -> Any:
        check(self._get_params())
        return original(self)  # type: ignore[misc]  # `replace` has refused a moto without it

    replace(SecurityGroups, action, checked)


def _name_duplicates(method: str) -> None:
    """Name the rule that exists already, as EC2 does: moto makes rules one by one, and stops at the repeated one."""
    made: Any = getattr(SecurityGroupBackend, "_iterate_security_rules", None)
    authorize: Any = getattr(SecurityGroupBackend, method, None)

    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        rules: list[Any] = []

        def noted(*given: Any, **more: Any) -> Iterator[Any]:
            for rule in made(self, *given, **more):
                rules.append(rule)
                yield rule

        self._iterate_security_rules = noted
        try:
            return authorize(self, *args, **kwargs)
        except InvalidPermissionDuplicateError:
            text = f'the specified rule "{_rule_text(rules[-1])}" already exists'
            raise EC2ClientError("InvalidPermission.Duplicate", text) from None
        finally:
            del self._iterate_security_rules

    replace(SecurityGroupBackend, method, named)


def _rule_text(rule: Any) -> str:
    """Return a rule as EC2's refusals show it: `peer: sg-0123, TCP, from port: 22, to port: 22, ALLOW`.

    Source: EC2's messages in hashicorp/terraform issue 1874 (groups), terraform-aws-security-group issue 351
    (networks), lucidsoftware/cumulus issue 101 (all traffic), ansible-modules-core pull request 3258 (other protocols).
    """
    peer = rule.ip_range.get("CidrIp") or rule.ip_range.get("CidrIpv6") or rule.prefix_list_id
    peer = peer or rule.source_group.get("GroupId", "")
    if rule.ip_protocol == "-1":
        return f"peer: {peer}, ALL, ALLOW"
    if rule.ip_protocol not in ("tcp", "udp"):
        return f"peer: {peer}, protocol: {rule.ip_protocol}, ALLOW"
    return f"peer: {peer}, {rule.ip_protocol.upper()}, from port: {rule.from_port}, to port: {rule.to_port}, ALLOW"


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

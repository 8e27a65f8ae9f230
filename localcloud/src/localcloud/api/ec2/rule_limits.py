"""How many rules a group may have: a prefix list counts with its MaxEntries, full or empty; in moto as one rule."""

from __future__ import annotations

from typing import Any, Final

from moto.ec2.exceptions import RulesPerSecurityGroupLimitExceededError
from moto.ec2.models import security_groups

from localcloud.api.monkeypatch import replace

_MOST: Final = 60
"""The quota Inbound or outbound rules per security group, by default."""


def apply() -> None:
    """Correct moto."""
    for side, rules in (("ingress", "ingress_rules"), ("egress", "egress_rules")):
        _correct(f"authorize_security_group_{side}", rules)


def _correct(method: str, rules: str) -> None:
    """Count what a call would bring a group's rules to, before any of them is added; moto calls it by keywords."""
    original: Any = getattr(security_groups.SecurityGroupBackend, method, None)

    def authorize(self: Any, group_name_or_id: str, *args: Any, **kwargs: Any) -> Any:
        group = self.get_security_group_by_name_or_id(group_name_or_id, kwargs.get("vpc_id"))
        if group is not None:
            held = sum(_weight(self, rule.prefix_list_id) for rule in getattr(group, rules))
            lists = sum(_weight(self, each["PrefixListId"]) for each in kwargs.get("prefix_list_ids") or ())
            others = sum(len(kwargs.get(name) or ()) for name in ("ip_ranges", "source_groups"))
            if held + lists + others > _MOST:
                raise RulesPerSecurityGroupLimitExceededError
        return original(self, group_name_or_id, *args, **kwargs)

    replace(security_groups.SecurityGroupBackend, method, authorize)


def _weight(ec2: Any, prefix_list: str | None) -> int:
    """Return how many rules a rule counts as; AWS's own lists have weights of their own, which moto does not know."""
    found = ec2.managed_prefix_lists.get(prefix_list) if prefix_list else None
    return int(found.max_entries or 1) if found is not None else 1

"""The master's inbound rules: a prefix list counts with its maximum number of entries, against the account's quota."""

from __future__ import annotations

import pytest

from cluster.doctor import quotas
from cluster.doctor.finding import FAIL, OK, UNKNOWN
from cluster.doctor.firewall import QUOTA, judge_rules, own_rules, rules
from stacks.config_keys.network import SESSION_MANAGER
from tests.cluster.doctor.conftest import Examined, config_of
from tests.stacks.clusters.synthesis import synthesise

LIST, OTHER = "pl-0123456789abcdef0", "pl-0123456789abcdef1"


@pytest.mark.parametrize(("most", "state"), [(59, OK), (60, FAIL), (61, FAIL)])
def test_prefix_list_counts_with_its_maximum_entries(most: int, state: str) -> None:
    (found,) = judge_rules(config_of(ssh_prefix_lists=(LIST,)), {LIST: most}, 60)
    assert (found.state, found.what.split()[0]) == (state, str(1 + most))
    assert (found.state == FAIL) == ("Service Quotas" in found.remedy)


def test_missing_prefix_list_is_reported_and_others_are_counted() -> None:
    missing, count = judge_rules(config_of(ssh_prefix_lists=(LIST, OTHER)), {OTHER: 5}, 60)
    assert (missing.state, LIST in missing.what) == (FAIL, True)
    assert (count.state, count.what.split()[0]) == (OK, "6")


def test_unreadable_lists_are_unknown() -> None:
    (found,) = judge_rules(config_of(ssh_prefix_lists=(LIST,)), {LIST: None}, 60)
    assert (found.state, LIST in found.what) == (UNKNOWN, True)
    (found,) = judge_rules(config_of(), {}, None)
    assert found.state == UNKNOWN


def test_prefix_lists_are_not_checked_without_ssh_port() -> None:
    assert list(judge_rules(config_of(ssh_access=SESSION_MANAGER, ssh_cidr=()), {}, 60)) == []


def test_rules_of_master_match_the_template() -> None:
    config = config_of(ssh_cidr=("198.18.0.7/32", "198.18.4.0/24"), fsx_capacity_gib=1200)
    template = synthesise(config)
    master = template.group_behind("SSH from ssh_cidr")
    inbound = [rule for rule in template.rules() if rule[:2] == ("in", master)]
    assert own_rules(config) == len(inbound)


def test_lists_are_read_from_the_account(subject: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "read_quotas", lambda *_: {QUOTA: 60.0})
    ec2 = subject().aws.client("ec2")
    made = ec2.create_managed_prefix_list(PrefixListName="offices", MaxEntries=61, AddressFamily="IPv4")
    found = list(rules(subject(ssh_prefix_lists=(made["PrefixList"]["PrefixListId"],))))
    assert [each.state for each in found] == [FAIL]
    assert found[0].what.startswith("62 inbound rules for the master")
    (missing, _) = rules(subject(ssh_prefix_lists=(LIST,)))
    assert (missing.state, LIST in missing.what) == (FAIL, True)

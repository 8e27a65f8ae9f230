"""Checks of account and laptop: what `fab up` would do, would reject, or could not do."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from typing import Any

import pytest

from cluster.deploy import key_pair as key_pairs
from cluster.deploy.bootstrap import Bootstrap, Names
from cluster.doctor.account import (
    bootstrap,
    budget,
    configuration,
    credentials,
    judge_bootstrap,
    judge_stack,
    key_pair,
    session_manager,
    stack,
)
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Finding
from tests.cluster.doctor.conftest import Examined


def states(findings: Any) -> list[str]:
    return [each.state for each in findings]


def test_every_configuration_problem_has_its_own_line(subject: Examined) -> None:
    assert states(configuration(subject())) == [OK]
    found = list(configuration(subject(worker_instance_type="c5.2xlage", vpc_cidr="198.18.0.0/16", max_workers=999)))
    assert states(found) == [FAIL] * len(found)
    assert any("c5.2xlage" in each.what and "c5.2xlarge" in each.remedy for each in found)


def test_missing_source_for_ssh_is_reported(subject: Examined) -> None:
    (found,) = configuration(subject(ssh_cidr=()))
    assert found.state == FAIL
    assert found.what.startswith("ssh_cidr = []: empty")
    assert "session-manager" in found.remedy


def test_account_is_shown(subject: Examined) -> None:
    (found,) = credentials(subject())
    assert found.state == OK
    assert "account 123456789012" in found.what
    assert "us-east-1" in found.what


def test_new_account_is_ready_for_bootstrap(subject: Examined) -> None:
    assert states([*bootstrap(subject()), *stack(subject())]) == [WARN, OK]


@pytest.mark.parametrize(
    ("changes", "state", "says"),
    [
        ({}, OK, "version 33"),
        ({"status": "", "names": Names(qualifier="corp01")}, OK, "with qualifier corp01"),
        ({"bucket_exists": None}, OK, "may not see bucket"),
        ({"version": 5}, WARN, "too old"),
        ({"version": None, "bucket_exists": False, "status": "ROLLBACK_COMPLETE"}, WARN, "not bootstrapped"),
        ({"version": None, "status": ""}, FAIL, "the CDK's bootstrap is incomplete"),
        ({"bucket_exists": False}, FAIL, "the CDK's bootstrap is incomplete"),
    ],
)
def test_each_bootstrap_state_is_reported(changes: dict[str, Any], state: str, says: str) -> None:
    """Source: aws-cdk #24143, #26588."""
    whole = Bootstrap(
        names=Names(), account="1", region="us-east-1", version=33, bucket_exists=True, status="UPDATE_COMPLETE"
    )
    found = judge_bootstrap(dataclasses.replace(whole, **changes))
    assert found.state == state
    assert says in found.what
    assert found.remedy or state == OK
    assert ("creates a bucket" in found.remedy) == ("not bootstrapped" in says)


@pytest.mark.parametrize(
    ("status", "state", "says"),
    [
        ("CREATE_COMPLETE", OK, "--plan"),
        ("REVIEW_IN_PROGRESS", OK, "creates it"),
        ("UPDATE_IN_PROGRESS", FAIL, "a change is in progress"),
        ("ROLLBACK_COMPLETE", WARN, "failed to be created"),
        ("UPDATE_ROLLBACK_FAILED", FAIL, "accepts no change"),
        ("DELETE_FAILED", FAIL, "DELETE_FAILED"),
    ],
)
def test_stack_check_depends_on_whether_it_can_be_deployed(status: str, state: str, says: str) -> None:
    found = judge_stack("deepcdk", {"StackStatus": status})
    assert found.state == state
    assert says in found.what
    assert state == OK or found.remedy


def make_key(subject: Any, name: str) -> None:
    folder = subject.home / ".ssh"
    folder.mkdir(exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)


def test_key_pair_must_match_or_be_importable_from_users_key(
    subject: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = subject()

    def look() -> Finding:
        (found,) = key_pair(who)
        return found

    assert (look().state, "ssh-keygen" in look().remedy) == (FAIL, True)
    make_key(who, "id_ed25519")
    assert (look().state, "imports" in look().what) == (OK, True)
    key_pairs.import_public_key(who.aws, "deepcdk", key_pairs.own_keys(who.home)[0])
    assert (look().state, "matches your" in look().what) == (OK, True)
    shutil.rmtree(who.home / ".ssh")
    make_key(who, "id_ed25519")
    assert (look().state, "not match your keys" in look().what) == (FAIL, True)
    monkeypatch.setattr(key_pairs, "describe", lambda *_: {"KeyName": "deepcdk"})
    assert look().state == UNKNOWN


def test_without_an_ssh_port_the_programs_of_session_manager_are_needed(
    subject: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = list(session_manager(subject(ssh_access="session-manager", ssh_cidr=())))
    assert states(found)[-1] == FAIL
    assert "session-manager-plugin" in found[-1].what
    assert "install AWS's plugin for the CLI" in found[-1].remedy and "ssh_access = port" in found[-1].remedy


def test_budgets_are_checked_only_if_configured(subject: Examined) -> None:
    (found,) = budget(subject(budget_usd=100.0))
    assert (found.state, "0 exist" in found.what) == (OK, True)

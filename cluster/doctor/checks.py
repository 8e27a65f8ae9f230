"""List and run the checks of `fab doctor`: laptop, account and configuration, before a deployment costs anything."""

from __future__ import annotations

import concurrent.futures
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from cluster.doctor import (
    account,
    capacity_reservation,
    existing_resources,
    firewall,
    images,
    instance_types,
    laptop,
    quotas,
    routes,
)
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Check, Finding, Subject, finding
from cluster.errors import DeepcdkError
from cluster.terminal.output import print_note
from cluster.terminal.tables import Table
from stacks.config import ConfigError

LOCAL: Final[tuple[tuple[str, Check], ...]] = (
    ("configuration", account.configuration),
    ("session manager", account.session_manager),
    ("GPU floors", instance_types.floors_of_types),
)
REMOTE: Final[tuple[tuple[str, Check], ...]] = (
    ("CDK bootstrap", account.bootstrap),
    ("stack", account.stack),
    ("key pair", account.key_pair),
    ("images", images.image),
    ("zones", instance_types.offering),
    ("vCPU quota", quotas.vcpus),
    ("network quotas", quotas.addresses_and_networks),
    ("firewall", firewall.rules),
    ("existing VPC", existing_resources.subnets),
    ("VPC names and routes", routes.ways_out),
    ("file system", existing_resources.file_system),
    ("permissions boundary", existing_resources.permissions_boundary),
    ("capacity reservation", capacity_reservation.reservation),
    ("budget", account.budget),
)
"""Checks that need AWS, with the name to report if AWS cannot be reached."""
_BEFORE_UP: Final = ("images", "zones", "vCPU quota", "network quotas", "capacity reservation")
BEFORE_UP: Final = tuple(each for each in REMOTE if each[0] in _BEFORE_UP)
"""The checks that `fab up` makes. AWS would report these problems only minutes after the deployment has started."""


class AccountError(DeepcdkError):
    """Report that a deployment would fail in this account. `findings` are the failed checks."""

    def __init__(self, stack: str, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        found = "".join(f"\n  {each.check}: {each.what}" for each in findings)
        remedies = "; ".join(dict.fromkeys(each.remedy for each in findings if each.remedy))
        super().__init__(
            f"stack {stack} would fail in this account, so nothing was created{found}",
            remedy=f"{remedies}; or deploy anyway with --force",
        )


def examine_laptop() -> tuple[Finding, ...]:
    """Return the findings on Python, programs, SSH, home, disks and region, which need neither a project nor AWS."""
    return tuple(each for check in laptop.CHECKS for each in check())


def without_configuration(error: ConfigError) -> tuple[Finding, ...]:
    """Return the findings to report instead of `examine` if the configuration cannot be read."""
    remedy = "correct cdk.json or --set; `deepcdk init DIR` writes a new project"
    rest = ", ".join(["credentials", *(name for name, _ in REMOTE)])
    return (
        finding("configuration", FAIL, str(error), remedy),
        finding("other checks", UNKNOWN, f"not checked: {rest}", "correct the configuration, then repeat"),
    )


def examine(subject: Subject) -> tuple[Finding, ...]:
    """Return the findings on configuration and account. Nothing is changed, and nothing costs money.

    If the credentials fail, the checks that need AWS are reported as unknown. So is each check that raises
    DeepcdkError, for example because AWS does not answer.
    """
    found = [each for name, check in LOCAL for each in _examine(name, check, subject)]
    try:
        found += account.credentials(subject)
    except DeepcdkError as error:
        rest = ", ".join(name for name, _ in REMOTE)
        return (
            *found,
            finding("credentials", FAIL, _line(error), error.remedy),
            finding("other checks", UNKNOWN, f"not checked: {rest}", "correct the credentials, then repeat"),
        )
    return (*found, *examine_remote(subject, REMOTE))


def examine_remote(subject: Subject, checks: Sequence[tuple[str, Check]]) -> list[Finding]:
    """Return the findings of some checks of REMOTE, in their order. The checks run in parallel.

    If a check raises DeepcdkError, its finding has the state unknown.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(checks)) as pool:
        findings = pool.map(lambda check: _examine(check[0], check[1], subject), checks)
        return [each for of_check in findings for each in of_check]


def check_before_up(stack: str, findings: Sequence[Finding], *, may_fail: bool) -> None:
    """Print a note about each finding of the checks BEFORE_UP that is not ok.

    If one of them has failed, raises AccountError instead, unless `may_fail` is set.
    """
    failed = [each for each in findings if each.state == FAIL]
    if failed and not may_fail:
        raise AccountError(stack, failed)
    for each in findings:
        if each.state != OK:
            word = "not checked" if each.state == UNKNOWN else "warning"
            print_note(f"{word}: {each.check}: {each.what}" + (f"; {each.remedy}" if each.remedy else ""))


def _examine(name: str, check: Check, subject: Subject) -> list[Finding]:
    """Run one check. If it raises DeepcdkError, add a finding with state unknown and the reason."""
    found: list[Finding] = []
    try:
        for each in check(subject):
            found.append(each)
    except DeepcdkError as error:
        found.append(finding(name, UNKNOWN, _line(error), error.remedy))
    return found


def _line(error: DeepcdkError) -> str:
    what = str(error.what).partition("\n")[0]
    return f"{error.where}: {what}" if error.where else what


def summary(findings: Sequence[Finding]) -> str:
    """Count the findings by state, in one line: `1 failed, 2 warning, 9 ok`."""
    counts = Counter(each.state for each in findings)
    words = {FAIL: "failed", WARN: "warning", UNKNOWN: "unknown", OK: "ok"}
    return ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state])


def findings_table(title: str, findings: Sequence[Finding]) -> Table:
    """Build the table of findings. Its footer has their number by state, and what to do about those that are not ok."""
    remedies = [f"{each.check}: {each.remedy}" for each in findings if each.remedy and each.state != OK]
    return Table(
        title=title,
        columns=("state", "check", "found"),
        rows=tuple((each.state, each.check, each.what) for each in findings),
        footer=(summary(findings), *(["what to do:"] if remedies else []), *(f"  {remedy}" for remedy in remedies)),
    )


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as JSON values: `failed`, their number with state FAIL, and the list `findings`."""
    return {
        "failed": sum(each.state == FAIL for each in findings),
        "findings": [
            {"check": each.check, "state": each.state.lower(), "what": each.what, "remedy": each.remedy}
            for each in findings
        ],
    }

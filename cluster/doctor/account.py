"""Checks of the account and the configuration: credentials, CDK, stack, key pair, Session Manager, budgets."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.aws.errors import aws_errors
from cluster.deploy import bootstrap as bootstraps
from cluster.deploy import cdk
from cluster.deploy import key_pair as keypair
from cluster.deploy.cdk import CdkError
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Finding, Subject, finding
from cluster.errors import AwsError, DeepcdkError
from cluster.ssh.session_manager import INSTALL
from stacks.cross_key_checks import cautions, check


def configuration(subject: Subject) -> Iterator[Finding]:
    """Check the configuration as a whole, as `fab up` does, without AWS.

    Yields one finding per problem, or one that is ok. A broken rule fails. A caution is only a warning, except if
    the master cannot be reached.
    """
    name = "configuration"
    config = subject.config
    found = [finding(name, FAIL, each.what, each.remedy) for each in check(config, subject.aws.region)]
    for each in cautions(config):
        # A cluster without access can be synthesised, but `fab up` does not deploy it.
        state = WARN if config.is_reachable or each.key != "ssh_cidr" else FAIL
        found.append(finding(name, state, each.what, each.remedy))
    yield from found or [finding(name, OK, "follows all rules that can be checked without AWS")]


def session_manager(subject: Subject) -> Iterator[Finding]:
    """Check the programs needed to reach a master without an SSH port. Yields nothing if the port is open."""
    if not subject.config.opens_ssh_port:
        missing = [each for each in ("aws", "session-manager-plugin") if shutil.which(each) is None]
        found = functools.partial(finding, "session manager")
        if missing:
            remedy = f"{'; '.join(INSTALL[each] for each in missing)}; or set ssh_access = port"
            yield found(FAIL, f"{' and '.join(missing)}: not in PATH, but ssh_access = session-manager", remedy)
        else:
            yield found(OK, "aws and session-manager-plugin are in PATH")


def credentials(subject: Subject) -> Iterator[Finding]:
    """Check that AWS accepts the credentials, and report whose they are. Warns about the root user.

    Raises AwsError if AWS does not accept them, or if no region is set.
    """
    with aws_errors("reading the identity of the credentials"):
        found = subject.aws.client("sts").get_caller_identity()
    if not subject.aws.region:
        raise AwsError("no AWS region is set", remedy="set AWS_REGION, or a region in your profile")
    place = subject.aws.region + (f", API at {subject.aws.endpoint}" if subject.aws.endpoint else "")
    root = str(found["Arn"]).endswith(":root")
    remedy = "use the credentials of a user or a role, not of the account's root user" if root else ""
    what = f"account {found['Account']} as {found['Arn']}, {place}"
    yield finding("credentials", WARN if root else OK, what, remedy)


def bootstrap(subject: Subject) -> Iterator[Finding]:
    """Check the CDK bootstrap of the account and region. Yields one finding. Raises AwsError or DeepcdkError."""
    names = bootstraps.Names.read(subject.project, subject.home, os.environ)
    yield judge_bootstrap(bootstraps.examine(subject.aws, names))


def judge_bootstrap(there: bootstraps.Bootstrap) -> Finding:
    """Judge the CDK bootstrap. If half of it is missing, it fails. A missing or too old bootstrap is only a warning."""
    name = "CDK bootstrap"
    try:
        there.check()
    except CdkError as error:
        return finding(name, FAIL, error.what, error.remedy)
    if there.is_complete:
        unseen = "" if there.bucket_exists else f"; this user may not see bucket {there.bucket}"
        return finding(name, OK, f"version {there.version}: {there.place}{unseen}")
    old = f"version {there.version} is too old; the minimum is {bootstraps.MIN_VERSION}"
    if there.version is not None:
        return finding(name, WARN, f"{old}: {there.place}", "run `fab up`, which asks, then updates the bootstrap")
    remedy = "run `fab up`, which asks, then bootstraps once; it creates a bucket and roles"
    return finding(name, WARN, f"the CDK is not bootstrapped: {there.place}", remedy)


def stack(subject: Subject) -> Iterator[Finding]:
    """Check that the cluster's stack can be deployed to. Yields one finding. Raises AwsError."""
    yield judge_stack(subject.config.stack_name, subject.stack)


def judge_stack(name: str, described: Mapping[str, Any] | None) -> Finding:
    """Judge the cluster's stack by its entry of DescribeStacks; None if the stack does not exist, which is ok.

    It fails during a change, and after a failed change or deletion. A failed creation is a warning, because `fab up`
    repeats it.
    """
    found = functools.partial(finding, "stack")

    if described is None or described["StackStatus"] in ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS"):
        return found(OK, f"{name} is not deployed; `fab up` creates it")
    status = described["StackStatus"]
    if status in cdk.COMPLETE:
        return found(OK, f"{name} is deployed ({status}); `fab up --plan` shows what would change")
    if status.endswith("_IN_PROGRESS"):
        return found(
            FAIL,
            f"{name} is {status}: a change is in progress",
            "wait until the change has ended; `fab status` shows the state",
        )
    if status in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"):
        return found(
            WARN,
            f"{name} failed to be created ({status})",
            "`fab up` removes what is left, and creates the stack again",
        )
    if status == "UPDATE_ROLLBACK_FAILED":
        command = f"aws cloudformation continue-update-rollback --stack-name {name}"
        return found(
            FAIL,
            f"{name} is {status}: CloudFormation accepts no change",
            f"fix the cause that the stack's events name, then run `{command}`",
        )
    return found(
        FAIL, f"{name} is {status}", "remove the stack with `fab down`; its events in CloudFormation show the cause"
    )


def key_pair(subject: Subject) -> Iterator[Finding]:
    """Check that the user could log in to new nodes: the EC2 key pair is the user's, or can be imported.

    The state is unknown if EC2 does not report the public key. Raises AwsError.
    """
    name, check_name = subject.config.key_name, "key pair"
    described = keypair.describe(subject.aws, name)
    try:
        own = keypair.own_keys(subject.home, subject.key)
    except DeepcdkError as error:
        yield finding(check_name, FAIL, f"{error.what}; {error.where}" if error.where else error.what, error.remedy)
        return
    if described is None:
        try:
            found = keypair.find_importable(own)
        except DeepcdkError as error:
            yield finding(check_name, FAIL, f"{error.what}; {error.where}", error.remedy)
            return
        yield finding(check_name, OK, f"{name} does not exist; `fab up` imports {found.place}")
        return
    match = keypair.match(described, own)
    if match.differs:
        other = keypair.OtherKeyError(match)
        yield finding(check_name, FAIL, f"{other.what}; {other.where}", other.remedy)
    elif match.found:
        yield finding(check_name, OK, f"{name} matches your {match.found}")
    else:
        what = f"EC2 does not report the public key of {name}, so it cannot be compared with your keys"
        remedy = "set another key_name, to which `fab up` imports your key; or deploy, and try `fab ssh`"
        yield finding(check_name, UNKNOWN, what, remedy)


def budget(subject: Subject) -> Iterator[Finding]:
    """Check that the credentials may read budgets. Yields nothing if no budget is configured. Raises AwsError."""
    if not subject.config.budget_usd:
        return
    with aws_errors("reading the account's budgets"):
        answer = subject.aws.impatient("budgets").describe_budgets(AccountId=subject.account, MaxResults=100)
    there = len(answer.get("Budgets", ()))
    what = f"budgets can be read, {there} exist; whether one can be created depends on the role of the deployment"
    yield finding("budget", OK, what)

"""A check's finding, and the subject that checks examine."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.errors import aws_errors
from cluster.aws.stack import describe_stack, read_template
from cluster.deploy import zones
from cluster.deploy.change_set import is_new
from cluster.errors import AwsError
from stacks.config import ClusterConfig

if TYPE_CHECKING:
    from cluster.aws.client import Aws

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "FAIL"
UNKNOWN: Final = "unknown"
REPLACES: Final = ", which replaces the subnets and the nodes of the deployed cluster"
"""Text to add to the advice to set other zones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One result of a check: a line of `fab doctor`."""

    check: str
    state: str
    """ok; warn: it works, with a drawback; FAIL: the deployment would fail or be useless; unknown: not checked."""
    what: str
    remedy: str = ""


def finding(check: str, state: str, what: str, remedy: str = "") -> Finding:
    """Return a finding. This is a short form for functions that make several findings of one check."""
    return Finding(check=check, state=state, what=what, remedy=remedy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """The configuration, the account and the laptop to examine."""

    aws: Aws
    config: ClusterConfig
    project: Path
    home: Path
    key: str
    """Private key file; "" to use the agent and ~/.ssh."""

    quotas: dict[str, Mapping[str, float] | AwsError] = dataclasses.field(default_factory=dict)
    """Results of `quotas.quotas_of` by service, because several concurrent checks need them."""
    reading: Mapping[str, threading.Lock] = dataclasses.field(
        default_factory=lambda: {service: threading.Lock() for service in ("ec2", "vpc")}
    )

    @functools.cached_property
    def account(self) -> str:
        """Return the id of the account. Raises AwsError."""
        with aws_errors("reading the identity of the credentials"):
            return str(self.aws.client("sts").get_caller_identity()["Account"])

    @functools.cached_property
    def stack(self) -> Mapping[str, Any] | None:
        """Return the entry of DescribeStacks for the configured stack; None if it does not exist. Raises AwsError."""
        return describe_stack(self.aws, self.config.stack_name)

    @property
    def deployed(self) -> bool:
        """Return whether the cluster's own resources exist, so that the account's usage includes them.

        Raises AwsError.
        """
        gone = ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE")
        return self.stack is not None and self.stack["StackStatus"] not in gone

    @functools.cached_property
    def template(self) -> Mapping[str, Any]:
        """Return the template of the deployed stack; {} if it is not deployed, or its creation failed.

        Raises AwsError.
        """
        return {} if is_new(self.stack) else read_template(self.aws, self.config.stack_name)

    @functools.cached_property
    def zones(self) -> tuple[str, ...]:
        """Return the zones of the cluster's subnets. Raises AwsError."""
        return zones.of(self.aws, self.config, self.template)


Check = Callable[[Subject], Iterable[Finding]]

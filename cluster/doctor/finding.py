"""What a checkup finds, and whom it examines."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.stack import describe_stack
from stacks.config import ClusterConfig

if TYPE_CHECKING:
    from cluster.aws.client import Aws

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "FAIL"
UNKNOWN: Final = "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the doctor's."""

    check: str
    state: str
    """ok; warn: it works, with a drawback; FAIL: the deployment would fail or be of no use; unknown: nobody can say."""
    what: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """What is examined: a configuration, in an account, from a laptop."""

    aws: Aws
    config: ClusterConfig
    project: Path
    home: Path
    key: str
    """Private key's file, "" for the agent's and those in ~/.ssh."""

    @functools.cached_property
    def stack(self) -> Mapping[str, Any] | None:
        """Return DescribeStacks' entry of what is deployed under this name already."""
        return describe_stack(self.aws, self.config.stack_name)

    @property
    def deployed(self) -> bool:
        """Tell whether the cluster's own resources are there already, and count among what the account uses."""
        gone = ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE")
        return self.stack is not None and self.stack["StackStatus"] not in gone


Checkup = Callable[[Subject], Iterable[Finding]]

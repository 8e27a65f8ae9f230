"""The CDK bootstrap of an account and region: check whether it is complete, and create it.

It is identified by its qualifier, as in the templates: the parameter /cdk-bootstrap/QUALIFIER/version and the bucket
for templates. The name of its stack matters only to `cdk bootstrap`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from cluster.aws.client import IgnoredCodes
from cluster.aws.errors import aws_errors
from cluster.aws.stack import describe_stack
from cluster.deploy import cdk
from cluster.deploy.cdk import CdkError
from cluster.errors import AwsError, DeepcdkError
from cluster.polling import poll

if TYPE_CHECKING:
    from cluster.aws.client import Aws

TOOLKIT: Final = "CDKToolkit"
QUALIFIER: Final = "hnb659fds"
MIN_VERSION: Final = 6
"""Version that the templates require (the rule CheckBootstrapVersion)."""
BUSY_TIMEOUT_S: Final = 600.0
POLL_S: Final = 2.0
_QUALIFIER_KEY: Final = "@aws-cdk/core:bootstrapQualifier"
_NOT_THERE: Final = ("404", "NoSuchBucket", "NotFound")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """Names that the CDK CLI uses to find the bootstrap."""

    toolkit: str = TOOLKIT
    qualifier: str = QUALIFIER

    @classmethod
    def read(cls, project: Path, home: Path, environ: Mapping[str, str]) -> Names:
        """Read the names from the CDK CLI's settings. Names that are not set are the CDK's defaults.

        A later source takes precedence: ~/.cdk.json, the project's cdk.json and cdk.context.json, then the variable
        CDK_TOOLKIT_STACK_NAME for the stack's name. Raises DeepcdkError for an unreadable file or an invalid qualifier.
        """
        toolkit, qualifier = TOOLKIT, QUALIFIER
        for path in (home / ".cdk.json", project / "cdk.json", project / "cdk.context.json"):
            settings = _json(path)
            context = settings if path.name == "cdk.context.json" else settings.get("context", {})
            toolkit = str(settings.get("toolkitStackName") or toolkit)
            qualifier = str(context.get(_QUALIFIER_KEY) or qualifier) if isinstance(context, Mapping) else qualifier
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,10}", qualifier):
            raise DeepcdkError(
                f"invalid bootstrap qualifier {qualifier!a}: must be 1 to 10 letters, digits, _ or -",
                where=f"{_QUALIFIER_KEY} in cdk.json, cdk.context.json or ~/.cdk.json",
                remedy="correct the qualifier, or remove it to use the CDK's default",
            )
        return cls(toolkit=environ.get("CDK_TOOLKIT_STACK_NAME") or toolkit, qualifier=qualifier)

    @property
    def parameter(self) -> str:
        """Return the name of the SSM parameter that contains the bootstrap's version."""
        return f"/cdk-bootstrap/{self.qualifier}/version"

    def bucket(self, account: str, region: str) -> str:
        """Return the name of the bootstrap's bucket for templates."""
        return f"cdk-{self.qualifier}-assets-{account}-{region}"


def _json(path: Path) -> Mapping[str, Any]:
    """Read an object from a JSON file; {} if the file does not exist or contains another kind of value.

    Raises DeepcdkError if the file cannot be read or is not valid JSON.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        what = f"{path.name} cannot be read: {error.strerror}"
        raise DeepcdkError(what, where=str(path), remedy="make it a readable file") from None
    except (ValueError, RecursionError) as error:
        what = f"{path.name} is not valid JSON: {error}"
        raise DeepcdkError(what, where=str(path), remedy="correct the file") from None
    return found if isinstance(found, Mapping) else {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """State of the CDK bootstrap in an account and region."""

    names: Names
    account: str
    region: str
    version: int | None
    """Version in the parameter; None if the parameter does not exist."""
    bucket_exists: bool | None
    """None if the user has no permission to see it."""
    status: str
    """Status of the toolkit's stack; "" if there is none."""

    @property
    def bucket(self) -> str:
        """Return the name of the bootstrap's bucket for templates."""
        return self.names.bucket(self.account, self.region)

    @property
    def is_complete(self) -> bool:
        """Return whether the CDK can deploy with this bootstrap: it is new enough (MIN_VERSION), and its bucket exists.

        If the user has no permission to see the bucket, it counts as existing.
        """
        return self.version is not None and self.version >= MIN_VERSION and self.bucket_exists is not False

    @property
    def place(self) -> str:
        """Return a description of account, region and, if it is not the CDK's default, qualifier."""
        custom = "" if self.names.qualifier == QUALIFIER else f" with qualifier {self.names.qualifier}"
        return f"account {self.account} in {self.region}{custom}"

    def check(self) -> None:
        """Raise CdkError if the toolkit's stack exists without its bucket, or the bucket without the stack.

        `cdk bootstrap` cannot repair that. The error explains the repair. A missing or too old bootstrap is no error
        here. A bucket that may not be seen is not checked.
        """
        toolkit, bucket = self.names.toolkit, self.bucket
        gone = not self.status or self.status in ("REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "DELETE_COMPLETE")
        if self.version is None and gone and self.bucket_exists:
            raise CdkError(
                f"the CDK's bootstrap is incomplete: bucket {bucket} exists, but its stack {toolkit} does not",
                where=self.place,
                remedy="empty and delete the bucket in the S3 console (`aws s3 rb --force` does not delete old "
                "versions), then repeat `fab up`. The bucket contains only templates and files of CDK applications. If "
                f"the account was bootstrapped with another qualifier, set {_QUALIFIER_KEY} in cdk.json instead",
            )
        if self.bucket_exists is False and (self.version is not None or self.status in cdk.COMPLETE):
            raise CdkError(
                f"the CDK's bootstrap is incomplete: stack {toolkit} exists, but its bucket {bucket} does not",
                where=self.place,
                remedy=f"delete the stack (`aws cloudformation delete-stack --stack-name {toolkit}`), then repeat "
                "`fab up`, which bootstraps again",
            )

    def question(self) -> str:
        """Return the text to confirm before the bootstrap is created or, if it has a version, updated.

        For a new bootstrap, it lists what is created. It has no question mark, because `confirm` adds `[y/N]`.
        """
        makes = "a bucket, an image repository and roles; one role can create everything that `fab up` deploys"
        if self.version is None:
            return f"bootstrap {self.place} for the CDK, once: stack {self.names.toolkit} with {makes}."
        return f"update the CDK's bootstrap of {self.place} from version {self.version}: stack {self.names.toolkit}."

    def command(self, cli: Path) -> list[str]:
        """Return the command that creates or updates the bootstrap. `cli` is the path of the CDK CLI.

        Run it outside of a project, or the CDK runs the project's app.
        """
        words = [str(cli), "bootstrap", f"aws://{self.account}/{self.region}"]
        if self.names.toolkit != TOOLKIT:
            words += ["--toolkit-stack-name", self.names.toolkit]
        if self.names.qualifier != QUALIFIER:
            words += ["--qualifier", self.names.qualifier]
        return words


def examine(aws: Aws, names: Names) -> Bootstrap:
    """Read the state of the bootstrap from AWS: account, version, stack status, and whether its bucket exists.

    The bucket's existence is None if the user may not see it. Raises AwsError.
    """
    with aws_errors("reading the account's id"):
        account = aws.client("sts").get_caller_identity()["Account"]
    stack = describe_stack(aws, names.toolkit)
    bucket_exists: bool | None = None
    with aws_errors("looking for the CDK's bucket"), IgnoredCodes("403", "AccessDenied"):
        bucket_exists = _has_bucket(aws, names.bucket(account, aws.region), account)
    return Bootstrap(
        names=names,
        account=account,
        region=aws.region,
        version=_version(aws, names, stack),
        bucket_exists=bucket_exists,
        status=str((stack or {}).get("StackStatus", "")),
    )


def _has_bucket(aws: Aws, bucket: str, account: str) -> bool:
    """Return whether the account owns a bucket. Raises ClientError with 403 if the user may not see it."""
    with IgnoredCodes(*_NOT_THERE):
        aws.client("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=account)
        return True
    return False


def _version(aws: Aws, names: Names, stack: Mapping[str, Any] | None) -> int | None:
    """Return the bootstrap's version from its SSM parameter, else from the output of the toolkit stack.

    The output is used only if the parameter cannot be read. `stack` is from DescribeStacks, None if there is no toolkit
    stack. Returns None if the parameter does not exist, and 0 if its value is not a number. Raises AwsError if neither
    can be read.
    """
    try:
        with aws_errors(f"reading {names.parameter}"), IgnoredCodes("ParameterNotFound"):
            value = aws.client("ssm").get_parameter(Name=names.parameter)["Parameter"]["Value"]
            return int(value) if value.isdecimal() else 0
    except AwsError as error:
        outputs = {each["OutputKey"]: each["OutputValue"] for each in (stack or {}).get("Outputs", ())}
        shown = str(outputs.get("BootstrapVersion", ""))
        if not shown.isdecimal():
            raise error from None
        return int(shown)
    return None


def make(
    aws: Aws, project: Path, found: Bootstrap, report: Callable[[str], None], *, events: TextIO | None = None
) -> None:
    """Bootstrap the account and region with the CDK CLI, or wait for another machine that is doing it.

    `found` is the state before, from `examine`. If the CLI fails, wait up to BUSY_TIMEOUT_S while the toolkit stack is
    being changed, and raise CdkError unless the bootstrap is complete then. Also raises AwsError. `report` is called
    with notes. `events` is the stream for the CLI's output. None: only a progress line is shown.
    """
    report(f"bootstrapping {found.place} for the CDK (once)")
    operation = cdk.Operation(
        noun="the bootstrap", doing=f"bootstrapping {found.place}", remedy="fix the cause, then repeat `fab up`"
    )
    with tempfile.TemporaryDirectory(prefix="deepcdk-") as empty:
        try:
            command = found.command(cdk.find_cli(project))
            cdk.run(command, Path(empty), operation, aws.environment(), events=events)
        except CdkError:
            # CloudFormation executes one change set of a stack at a time, so one of two concurrent bootstraps fails.
            is_complete = False
            with contextlib.suppress(AwsError):  # it must not hide why the bootstrap failed
                for _ in poll(BUSY_TIMEOUT_S, every_s=POLL_S):
                    if not _is_busy(describe_stack(aws, found.names.toolkit)):
                        break
                is_complete = examine(aws, found.names).is_complete
            if not is_complete:
                raise
            report("another machine has bootstrapped the account at the same time, so `fab up` continues")


def _is_busy(stack: Mapping[str, Any] | None) -> bool:
    status = str((stack or {}).get("StackStatus", ""))
    return status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS"


def names_of(project: Path) -> Names:
    """Return the bootstrap's names for a project, from its files and this laptop's. Raises as `Names.read` does."""
    return Names.read(project, Path.home(), os.environ)

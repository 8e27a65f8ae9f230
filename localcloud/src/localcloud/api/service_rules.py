"""Requests that Budgets, EFS, S3, SNS, SQS and the parameter store reject but moto accepts; EFS's UpdateFileSystem."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from moto.budgets.models import BudgetsBackend
from moto.core.exceptions import JsonRESTError
from moto.core.utils import unix_time_millis
from moto.efs.exceptions import FileSystemNotFound, SecurityGroupNotFound
from moto.efs.models import EFSBackend
from moto.efs.responses import EFSResponse
from moto.iam.access_control import PermissionResult
from moto.iam.models import iam_backends
from moto.s3.exceptions import MalformedXML, S3ClientError
from moto.s3.models import FakeBucket, S3Backend
from moto.s3.responses import S3Response
from moto.sns.exceptions import SNSInvalidParameter
from moto.sns.models import SNSBackend
from moto.sqs.models import SQSBackend
from moto.ssm.exceptions import ValidationException
from moto.ssm.responses import SimpleSystemManagerResponse

from localcloud.api.iam import listed, missing_principals, statements
from localcloud.api.monkeypatch import RefusalError, added, around, first, instead

_MAX_DELETIONS: Final = 1000
_SSE_S3: Final = {
    "Rule": {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": "false"}
}
_QUEUE_PAUSE_S: Final = 60.0
_DAY_S: Final = 24 * 3600.0
_CHANGED: Final = "_throughput_changed"
_TOPIC_ACTION: Final = re.compile(
    "SNS:(AddPermission|DeleteTopic|GetDataProtectionPolicy|GetTopicAttributes|ListSubscriptionsByTopic|"
    "ListTagsForResource|Publish|PutDataProtectionPolicy|Receive|RemovePermission|SetTopicAttributes|Subscribe)",
    re.IGNORECASE,
)
"""Actions of topics, from "SNS API permissions" in the developer guide and from a topic's default policy."""


@first(BudgetsBackend, "create_budget")
def _check_budget(budgets: Any, account_id: str, budget: Any, notifications: Iterable[Mapping[str, Any]]) -> None:
    for each in notifications or ():
        _check_subscribers(budgets, subscribers=each["Subscribers"])


@first(BudgetsBackend, "create_notification")
def _check_subscribers(budgets: Any, *, subscribers: Iterable[Mapping[str, str]], **_: Any) -> None:
    """Reject a budget's notification with two SNS topics or with a duplicate subscriber."""
    given = [(each["SubscriptionType"], each["Address"]) for each in subscribers]
    if sum(kind == "SNS" for kind, _ in given) > 1:
        raise JsonRESTError(
            "CreationLimitExceededException", "one notification can only have 1 subscribers with type of SNS"
        )
    if len(set(given)) < len(given):
        # The error is in the API reference; AWS's text is not known.
        raise JsonRESTError("DuplicateRecordException", "The notification lists the same subscriber twice.")


@first(EFSBackend, "create_mount_target")
def _check_groups(
    efs: Any, file_system_id: str, subnet_id: str, ip_address: str | None = None, security_groups: Any = None
) -> None:
    """Reject a mount target with security groups of a different VPC than the subnet's."""
    ec2 = efs.ec2_backend
    subnet = next((found[subnet_id] for found in ec2.subnets.values() if subnet_id in found), None)
    if subnet is None:
        return  # moto rejects it itself
    for group in security_groups or ():
        if group not in ec2.groups.get(subnet.vpc_id, {}):
            raise SecurityGroupNotFound(group)


@added(EFSResponse, "update_file_system")
def update_file_system(self: Any) -> tuple[str, dict[str, Any]]:
    """Answer UpdateFileSystem: change the throughput mode and the provisioned throughput.

    Reject an unknown file system, and a second such change within a day. Reject the new mode `provisioned` without a
    throughput, and any other new mode with one.
    """
    id = self._get_param("FileSystemId")
    system = self.efs_backend.file_systems_by_id.get(id)
    if system is None:
        raise FileSystemNotFound(id)
    mode = self._get_param("ThroughputMode") or system.throughput_mode
    amount = self._get_param("ProvisionedThroughputInMibps")
    if (mode == "provisioned") != (amount is not None) and mode != system.throughput_mode:
        raise JsonRESTError(
            "BadRequest",
            f"ProvisionedThroughputInMibps must {'' if amount is None else 'not '}be set with ThroughputMode {mode}.",
        )
    _check_throughput(system, mode, amount)
    kept = system.provisioned_throughput_in_mibps if amount is None else amount
    system.throughput_mode = mode
    system.provisioned_throughput_in_mibps = kept if mode == "provisioned" else None
    return json.dumps(system.info_json()), {"status": 202, "Content-Type": "application/json"}


def _check_throughput(system: Any, mode: str, amount: float | None) -> None:
    """Reject a new mode, or a decrease of provisioned throughput, within a day of the last such change.

    If such a change is accepted, store its time.
    """
    before = system.provisioned_throughput_in_mibps
    less = amount is not None and before is not None and float(amount) < float(before)
    if mode == system.throughput_mode and not less:
        return
    if time.time() - getattr(system, _CHANGED, 0.0) < _DAY_S:
        # The rule and the code are in the API reference; AWS's text is not known.
        raise JsonRESTError(
            "TooManyRequests",
            "You can change the throughput mode, or decrease the provisioned throughput, 24 hours after the last such "
            "change.",
        )
    setattr(system, _CHANGED, time.time())


@instead(FakeBucket, "get_permission")
def _get_permission(self: Any, action: str, resource: str) -> Any:
    """Ignore bucket policies, which the gate checks. moto's own check treats unknown conditions as true."""
    return PermissionResult.NEUTRAL


@around(S3Backend, "get_bucket_encryption")
def _get_bucket_encryption(original: Any, self: Any, bucket_name: str) -> dict[str, Any]:
    """Return a bucket's default encryption: SSE-S3 unless it is configured, as on AWS since 2023."""
    return original(self, bucket_name) or _SSE_S3


@around(S3Backend, "list_object_versions")
def _list_object_versions(
    original: Any,
    self: Any,
    bucket_name: str,
    delimiter: str | None = None,
    key_marker: str | None = None,
    max_keys: int | None = 1000,
    prefix: str = "",
    version_id_marker: str | None = None,
) -> Any:
    """List the object versions of a page, also if the marker was deleted since the previous page.

    moto would return an empty page in this case.
    """
    if key_marker is not None and not (delimiter and key_marker.endswith(delimiter)):
        versions = [each for _, found in self.get_bucket(bucket_name).keys.iterlists() for each in found]
        if not any(each.name == key_marker and each.version_id == version_id_marker for each in versions):
            # The last version before the marker, in the order of the list: by name, newest version first.
            before = [v for v in versions if v.name < key_marker or (v.name == key_marker and not version_id_marker)]
            last = max(before, key=lambda each: (each.name, -unix_time_millis(each.last_modified)), default=None)
            key_marker, version_id_marker = (last.name, last.version_id) if last else (None, None)
    return original(self, bucket_name, delimiter, key_marker, max_keys, prefix, version_id_marker)


@first(S3Backend, "put_bucket_policy")
def _check_bucket_policy(s3: Any, bucket_name: str, policy: bytes) -> None:
    account = s3.get_bucket(bucket_name).account_id
    if any(missing_principals(iam_backends[account]["aws"], account, policy.decode())):
        raise S3ClientError("MalformedPolicy", "Invalid principal in policy")


@first(S3Response, "_bucket_response_delete_keys")
def _check_deletion(responses: Any, *_: Any, **__: Any) -> None:
    """Reject the deletion of more than 1,000 objects with one request."""
    if len(re.findall(rb"<Object>", responses.raw_body)) > _MAX_DELETIONS:
        raise MalformedXML


@first(SNSBackend, "set_topic_attribute")
def _check_topic_policy(sns: Any, topic_arn: str, attribute_name: str, attribute_value: str) -> None:
    """Reject a topic policy with actions that do not apply to topics, including `sns:*`."""
    if attribute_name.lower() != "policy":
        return
    for statement in statements(attribute_value):
        if not all(_TOPIC_ACTION.fullmatch(str(action)) for action in listed(statement.get("Action", []))):
            raise SNSInvalidParameter("Invalid parameter: Policy statement action out of service scope!")


@first(SQSBackend, "delete_queue")
def _note_deletion(sqs: Any, queue_name: str) -> None:
    """Store the time of a queue's deletion. Its name cannot be used again for a minute."""
    sqs.__dict__.setdefault("_deleted", {})[queue_name] = time.monotonic()


@first(SQSBackend, "create_queue")
def _check_queue(sqs: Any, name: str, tags: Any = None, **attributes: Any) -> None:
    deleted = sqs.__dict__.get("_deleted", {}).get(name)
    if deleted is not None and time.monotonic() - deleted < _QUEUE_PAUSE_S:
        raise RefusalError(
            "QueueDeletedRecently",
            "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
        )
    _check_queue_policy(sqs, name, attributes)


@first(SQSBackend, "set_queue_attributes")
def _check_queue_policy(sqs: Any, name: str, attributes: Mapping[str, Any]) -> None:
    policy = attributes.get("Policy") or attributes.get("policy")
    if policy and any(missing_principals(iam_backends[sqs.account_id]["aws"], sqs.account_id, policy)):
        raise RefusalError("InvalidAttributeValue", "Invalid value for the parameter Policy.")


@first(SimpleSystemManagerResponse, "put_parameter")
def _check_parameter_name(responses: Any) -> None:
    name = str(responses._get_param("Name"))
    if "/" in name and not name.startswith("/"):
        raise ValidationException("Parameter name must be a fully qualified name.")

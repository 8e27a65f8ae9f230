"""The permissions that S3's operations require. S3's actions have different names than its operations.

Source: "Required permissions for Amazon S3 API operations" in the user guide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from localcloud.api.permissions.request import Call

_ACTIONS: Final = {
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "DeleteBucketCors": "PutBucketCORS",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketLifecycle": "PutLifecycleConfiguration",
    "DeleteBucketOwnershipControls": "PutBucketOwnershipControls",
    "DeleteBucketReplication": "PutReplicationConfiguration",
    "DeleteBucketTagging": "PutBucketTagging",
    "DeleteObjects": "DeleteObject",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
    "GetBucketCors": "GetBucketCORS",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "GetBucketLifecycle": "GetLifecycleConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetBucketNotificationConfiguration": "GetBucketNotification",
    "GetBucketReplication": "GetReplicationConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "HeadBucket": "ListBucket",
    "HeadObject": "GetObject",
    "ListBuckets": "ListAllMyBuckets",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListObjectVersions": "ListBucketVersions",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListParts": "ListMultipartUploadParts",
    "PutBucketCors": "PutBucketCORS",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "PutBucketLifecycle": "PutLifecycleConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "PutBucketNotificationConfiguration": "PutBucketNotification",
    "PutBucketReplication": "PutReplicationConfiguration",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
}
_OF_VERSIONS: Final = frozenset(
    {"DeleteObject", "DeleteObjectTagging", "GetObject", "GetObjectAcl", "GetObjectAttributes", "GetObjectTagging"}
)
_READS: Final = frozenset({"GetObject", "HeadObject", "GetObjectAttributes"})
# Operations that encrypt. Parts of a multipart upload are also decrypted when they are joined.
_WRITES: Final = frozenset({"PutObject", "CopyObject", "CreateMultipartUpload"})
_PARTS: Final = frozenset({"UploadPart", "UploadPartCopy", "CompleteMultipartUpload"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectNeed:
    """A required action on a bucket or object."""

    action: str
    """Without the service: `PutObject`."""
    bucket: str = ""
    key: str | None = None
    """None for the bucket itself. If the bucket is empty too, the action applies to all buckets."""

    @property
    def arn(self) -> str:
        """Return the ARN of the bucket or object, or * for an action without a bucket."""
        if not self.bucket:
            return "*"
        return f"arn:aws:s3:::{self.bucket}" if self.key is None else f"arn:aws:s3:::{self.bucket}/{self.key}"


def needs(call: Call) -> Iterator[ObjectNeed]:
    """Yield the S3 permissions that an operation requires.

    They include the permission on a copy's source, and the permission to tag a new object if it has tags.
    """
    params = call.params
    bucket, key = str(params.get("Bucket", "")), params.get("Key")
    name = _ACTIONS.get(call.operation, call.operation)
    if call.operation == "DeleteObjects":
        yield from _deleted(bucket, params)
        return
    yield _versioned(ObjectNeed(action=name, bucket=bucket, key=key), params.get("VersionId"))
    if "CopySource" in params:
        yield source(params)
    if name == "PutObject" and params.get("Tagging"):
        yield ObjectNeed(action="PutObjectTagging", bucket=bucket, key=key)
    if call.operation == "GetObjectAttributes":
        yield _versioned(ObjectNeed(action="GetObject", bucket=bucket, key=key), params.get("VersionId"))


def source(params: Mapping[str, Any]) -> ObjectNeed:
    """Return the permission that a copy requires on its source."""
    given = unquote(str(params["CopySource"])).lstrip("/")
    path, _, version = given.partition("?versionId=")
    bucket, _, key = path.partition("/")
    return _versioned(ObjectNeed(action="GetObject", bucket=bucket, key=key), version)


def _deleted(bucket: str, params: Mapping[str, Any]) -> Iterator[ObjectNeed]:
    """Yield the permission for each object of DeleteObjects."""
    for each in params.get("Delete", {}).get("Objects", []):
        need = ObjectNeed(action="DeleteObject", bucket=bucket, key=str(each["Key"]))
        yield _versioned(need, each.get("VersionId"))


def _versioned(need: ObjectNeed, version: Any) -> ObjectNeed:
    """Return the permission for an object's version.

    It is unchanged if no version is given, or if S3 has no separate action for versions.
    """
    if not version or need.action not in _OF_VERSIONS:
        return need
    return dataclasses.replace(need, action=need.action.replace("Object", "ObjectVersion", 1))


def key_actions(operation: str) -> tuple[str, ...]:
    """Return the KMS actions that an operation requires on the object's key; () if it requires none."""
    if operation in _READS:
        return ("Decrypt",)
    if operation in _WRITES:
        return ("GenerateDataKey",)
    return ("Decrypt", "GenerateDataKey") if operation in _PARTS else ()

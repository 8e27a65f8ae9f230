"""Buckets: policies are decided before moto sees a request, and every bucket is encrypted.

moto has a check of its own for some operations, which takes a condition that it does not know for one that always
holds: the usual rule against plain HTTP would deny every request. And since 2023 every bucket of AWS is encrypted with
SSE-S3 unless it says otherwise; moto reports none. S3 refuses policies of principals that do not exist, and requests
that delete more than 1,000 objects.
"""

from __future__ import annotations

import re
from typing import Any, Final

from moto.iam.access_control import PermissionResult
from moto.iam.models import iam_backends
from moto.s3 import models
from moto.s3.exceptions import MalformedXML, S3ClientError
from moto.s3.responses import S3Response

from localcloud.api.iam.documents import missing_principals
from localcloud.api.monkeypatch import check_first, replace

_MOST_DELETIONS: Final = 1000
_SSE_S3 = {"Rule": {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": "false"}}


def apply() -> None:
    """Correct moto."""

    def get_permission(self: Any, action: str, resource: str) -> Any:
        del self, action, resource
        return PermissionResult.NEUTRAL

    replace(models.FakeBucket, "get_permission", get_permission)
    original = models.S3Backend.get_bucket_encryption

    def get_bucket_encryption(self: Any, bucket_name: str) -> dict[str, Any]:
        return original(self, bucket_name) or _SSE_S3

    replace(models.S3Backend, "get_bucket_encryption", get_bucket_encryption)
    check_first(models.S3Backend, "put_bucket_policy", _check_policy)
    check_first(S3Response, "_bucket_response_delete_keys", _check_deletion)


def _check_policy(s3: Any, bucket_name: str, policy: bytes) -> None:
    """Refuse a policy of principals that do not exist."""
    account = s3.get_bucket(bucket_name).account_id
    if any(missing_principals(iam_backends[account]["aws"], account, policy.decode())):
        raise S3ClientError("MalformedPolicy", "Invalid principal in policy")


def _check_deletion(responses: Any, *_: Any, **__: Any) -> None:
    """Refuse to delete more objects than a request may name."""
    if len(re.findall(rb"<Object>", responses.raw_body)) > _MOST_DELETIONS:
        raise MalformedXML

"""Buckets: policies with conditions, and the encryption that every bucket has.

AWS applies a statement of a bucket policy only where its conditions hold; moto takes a condition that it does not know
for one that always holds, so the usual rule against plain HTTP denies every request. And since 2023 every bucket of AWS
is encrypted with SSE-S3 unless it says otherwise; moto reports none. S3 refuses policies of principals that do not
exist, and requests that delete more than 1,000 objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.iam.models import iam_backends
from moto.s3 import models
from moto.s3.exceptions import MalformedXML, S3ClientError
from moto.s3.responses import S3Response

from localcloud.api.iam.documents import missing_principals
from localcloud.api.monkeypatch import check_first, replace

# What holds for every request: the API is reached within one machine, as if over TLS 1.3.
_FACTS: dict[str, str] = {"aws:securetransport": "true", "s3:tlsversion": "1.3"}
_MOST_DELETIONS: Final = 1000
_SSE_S3 = {"Rule": {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": "false"}}


def holds(condition: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a statement's condition holds; one about anything but the transport does not."""
    for operator, tests in condition.items():
        for key, wanted in tests.items():
            fact = _FACTS.get(key.lower())
            if fact is None:
                return False
            values = [str(each) for each in (wanted if isinstance(wanted, list) else [wanted])]
            if not any(_compare(operator, fact, value) for value in values):
                return False
    return True


def _compare(operator: str, fact: str, value: str) -> bool:
    match operator:
        case "Bool" | "StringEquals":
            return fact == value.lower()
        case "NumericLessThan":
            return float(fact) < float(value)
        case "NumericGreaterThanEquals":
            return float(fact) >= float(value)
    return False


RULES: Final[Mapping[str, str]] = {
    "s3:PutBucketPolicy": "principals by ARN exist",
    "s3:DeleteObjects": "1,000 objects at most",
}
"""What is refused, by action; shown in docs/."""


def apply() -> None:
    """Correct moto."""

    def get_permission(self: Any, action: str, resource: str) -> Any:
        if self.policy is None:
            return PermissionResult.NEUTRAL
        document = json.loads(self.policy.decode())
        given = document["Statement"]
        statements = [
            each for each in (given if isinstance(given, list) else [given]) if holds(each.get("Condition", {}))
        ]
        bare = [{key: value for key, value in each.items() if key != "Condition"} for each in statements]
        return IAMPolicy(json.dumps({**document, "Statement": bare})).is_action_permitted(action, resource)

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

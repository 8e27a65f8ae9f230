"""Buckets: policies with conditions, and the encryption that every bucket has.

AWS applies a statement of a bucket policy only where its conditions hold; moto takes a condition that it does not know
for one that always holds, so the usual rule against plain HTTP denies every request. And since 2023 every bucket of AWS
is encrypted with SSE-S3 unless it says otherwise; moto reports none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.s3 import models

from localcloud.api.monkeypatch import replace

# What holds for every request: the API is reached within one machine, as if over TLS 1.3.
_FACTS: dict[str, str] = {"aws:securetransport": "true", "s3:tlsversion": "1.3"}
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

"""CloudFormation's helper scripts: cfn-signal signs with the identity of its instance, and needs no permission.

"If no credentials are specified, CloudFormation checks for stack membership and limits the scope of the call to the
stack that the instance belongs to" (cfn-signal, in the user guide). The signature of the document is not verified.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from localcloud.api.permissions.request import Call

_ALLOWED: Final = frozenset({"SignalResource", "DescribeStackResource"})
_STACK_TAGS: Final = ("aws:cloudformation:stack-name", "aws:cloudformation:stack-id")


class Membership:
    """Decide requests that are signed `CFN_V1 DOCUMENT:SIGNATURE`."""

    def __init__(self, backend: Callable[[str], Any]) -> None:
        self._backend = backend

    def refusal(self, environ: Mapping[str, Any], call: Call) -> str:
        """Return why a request is refused; empty where it is allowed."""
        instance = _instance_id(str(environ["HTTP_AUTHORIZATION"]))
        if call.operation not in _ALLOWED:
            return f"Instance {instance} is not authorized to perform: cloudformation:{call.operation}"
        tags = self._backend("ec2").tags.get(instance, {}) if instance else {}
        stack = str(call.params.get("StackName", ""))
        if stack in [tags.get(key) for key in _STACK_TAGS]:
            return ""
        return f"Instance {instance or 'unknown'} does not belong to stack {stack}"


def _instance_id(authorization: str) -> str:
    try:
        document = base64.b64decode(authorization.removeprefix("CFN_V1 ").partition(":")[0], validate=True)
        return str(json.loads(document)["instanceId"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return ""

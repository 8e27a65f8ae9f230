"""AWS's own IAM policies, brought in when they are first attached.

On AWS every account has them. moto has them all too, but leaves them out unless asked, because making a thousand
policies takes longer than everything else at its start.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from moto.iam import models
from moto.iam.aws_managed_policies import aws_managed_policies_data

from localcloud.api.monkeypatch import replace

_PREFIX = "arn:aws:iam::aws:policy/"


@functools.cache
def _known() -> dict[str, dict[str, Any]]:
    """Return the policies' data by the path and name that their ARNs end in."""
    return {
        f"{data['Path'].strip('/')}/{name}".lstrip("/"): {**data, "name": name}
        for name, data in json.loads(aws_managed_policies_data).items()
    }


def apply() -> None:
    """Correct moto: attaching or reading one of AWS's policies finds it."""
    for method in ("attach_role_policy", "get_policy", "attach_user_policy", "attach_group_policy"):
        _bring_in_before(method)


def _bring_in_before(method: str) -> None:
    original = getattr(models.IAMBackend, method)

    @functools.wraps(original)
    def corrected(self: Any, policy_arn: str, *args: Any, **kwargs: Any) -> Any:
        if policy_arn.startswith(_PREFIX) and policy_arn not in self.managed_policies:
            data = _known().get(policy_arn[len(_PREFIX) :])
            if data is not None:
                policy = models.AWSManagedPolicy.from_data(data["name"], self.account_id, self.region_name, data)
                self.managed_policies[policy.arn] = policy
        return original(self, policy_arn, *args, **kwargs)

    replace(models.IAMBackend, method, corrected)

"""All corrections of moto, applied once and by name."""

from __future__ import annotations

import importlib.metadata
from typing import Final

from localcloud.api import error_replies

MOTO_VERSION: Final = "5.2.5"
"""The version whose internals the corrections change."""

_applied: list[object] = []


def apply() -> object:
    """Correct moto in this process, once; return the console that instances print to.

    Raises WrongMotoError where another version is installed.
    """
    found = importlib.metadata.version("moto")
    if found != MOTO_VERSION:
        raise error_replies.WrongMotoError(found, MOTO_VERSION)
    if not _applied:
        from localcloud.api import budgets, constraints, efs, fsx, parameter_names, s3, sns, sqs
        from localcloud.api.autoscaling import activities, creation, groups
        from localcloud.api.cloudwatch import alarms, metric_limits, scaling
        from localcloud.api.ec2 import (
            addresses,
            call_limits,
            dependencies,
            endpoints,
            instances,
            key_pairs,
            placement_groups,
            rule_limits,
            security_groups,
        )
        from localcloud.api.iam import assumption, instance_profiles, managed_policies, roles

        console = instances.Console()
        constraints.apply()
        addresses.apply()
        endpoints.apply()
        instances.apply(console)
        placement_groups.apply()
        groups.apply()
        activities.apply()
        managed_policies.apply()
        instance_profiles.apply()
        s3.apply()
        alarms.apply()
        scaling.apply()
        fsx.apply()
        security_groups.apply()
        rule_limits.apply()
        dependencies.apply()
        key_pairs.apply()
        call_limits.apply()
        creation.apply()
        roles.apply()
        assumption.apply()
        metric_limits.apply()
        budgets.apply()
        efs.apply()
        parameter_names.apply()
        sns.apply()
        sqs.apply()
        _applied.append(console)
    return _applied[0]

"""The actions of AWS's service authorization reference, and the ARNs of a request's resources.

The reference is the data of iam-data. It has the actions, the resource types of each action, and the format of their
ARNs. It does not have the request parameters that name resources.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from localcloud.api.permissions.evaluator import PACKAGES
from localcloud.api.permissions.request import Call, UndecidableError
from localcloud.snapshot import ACCOUNT, REGION

Named = dict[str, list[str]]
"""ARNs by resource type."""

# EC2's resource types by the prefix of their ids.
_EC2_IDS: Final = {
    "acl": "network-acl",
    "ami": "image",
    "cr": "capacity-reservation",
    "dopt": "dhcp-options",
    "eipalloc": "elastic-ip",
    "eni": "network-interface",
    "fl": "vpc-flow-log",
    "i": "instance",
    "igw": "internet-gateway",
    "lt": "launch-template",
    "nat": "natgateway",
    "pl": "prefix-list",
    "rtb": "route-table",
    "sg": "security-group",
    "sgr": "security-group-rule",
    "snap": "snapshot",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
}
_EC2_ID: Final = re.compile(rf"({'|'.join(_EC2_IDS)})-[0-9a-f]{{8,17}}")
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
# Placeholder for the region and the account if a request names no resource. Only wildcards match it.
_UNNAMED: Final = "unnamed"


# Request parameters with the names or ARNs of resources, by service and resource type.
_NAMED: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "budgets": {"budget": ("BudgetName", "Budget.BudgetName", "NewBudget.BudgetName")},
    "cloudwatch": {"alarm": ("AlarmName", "AlarmNames"), "dashboard": ("DashboardName", "DashboardNames")},
    "ec2": {"key-pair": ("KeyName",), "placement-group": ("PlacementGroup.GroupName", "Placement.GroupName")},
    "ecr": {"repository": ("repositoryName", "repositoryNames")},
    "elasticfilesystem": {"file-system": ("FileSystemId", "ResourceId")},
    "fsx": {"file-system": ("FileSystemId", "FileSystemIds")},
    "iam": {"policy": ("PolicyArn",)},
    "sns": {"topic": ("TopicArn", "ResourceArn")},
    "sqs": {"queue": ("QueueName",)},
    "ssm": {"instance": ("Target",), "session": ("SessionId",)},
    "sts": {"role": ("RoleArn",)},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Action:
    """An action of the service authorization reference."""

    name: str
    """With its service: `s3:PutObject`."""
    resources: Mapping[str, bool]
    """The action's resource types, and whether each is required. Empty if the action only supports *."""


def action(service: str, name: str) -> Action:
    """Return an action of a service (`s3`, `PutObject`; case is ignored). Raises UndecidableError if it is unknown."""
    found = _read("actions", service).get(name.lower())
    if found is None:
        raise UndecidableError(f"AWS's service authorization reference has no action {service}:{name}")
    types = {each["name"]: bool(each["required"]) for each in found["resourceTypes"]}
    return Action(name=f"{service}:{found['name']}", resources=types)


def _pattern(service: str, resource_type: str) -> str:
    """Return the ARN format of a resource type, with variables such as ${Region}."""
    return str(_read("resourceTypes", service)[resource_type.lower()]["arn"])


@functools.cache
def _read(kind: str, service: str) -> dict[str, Any]:
    """Return a service's data of a kind (`actions`, `resourceTypes`) from iam-data; {} for an unknown service."""
    path = PACKAGES / "iam-data" / "data" / kind / f"{service}.json"
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


class Resources:
    """Finds the resources of calls in one account and region."""

    def __init__(self, backend: Callable[[str], Any], stack_id: Callable[[str], str]) -> None:
        self._backend, self._stack_id = backend, stack_id
        self._readers: dict[str, Callable[[Call], Iterable[tuple[str, str]]]] = {
            "autoscaling": self._autoscaling,
            "cloudformation": self._cloudformation,
            "ec2": self._ec2,
            "elasticfilesystem": self._efs,
            "iam": self._iam,
            "kms": self._kms,
            "logs": self._logs,
            "servicequotas": self._quotas,
            "sns": self._sns,
            "sqs": self._sqs,
            "ssm": self._ssm,
        }
        """By service: yields type and ARN of each resource that a call names."""

    def of(self, call: Call, action: Action) -> list[str]:
        """Return the ARNs of a call's resources, or only `*` for an action without resources.

        In the ARN of a required resource that the call does not name, * replaces its id. If there is no other ARN, the
        list contains the ARN from `unnamed`. Raises UndecidableError for a service whose parameters are not known here.
        """
        if not action.resources:
            return ["*"]
        if call.service not in {*_NAMED, *self._readers}:
            raise UndecidableError(
                f"it is not known which parameters of {call.service} name the resources of {action.name}; test this "
                "call on AWS"
            )
        named = self._named(call)
        found: list[str] = []
        for kind, required in action.resources.items():
            found += named.get(kind, []) or ([self.arn(call.service, kind)] if required else [])
        return found or [self.unnamed(call.service, next(iter(action.resources)))]

    def _named(self, call: Call) -> Named:
        """Return the ARNs of the resources that a call names, by resource type."""
        named: Named = {}
        for kind, keys in _NAMED.get(call.service, {}).items():
            for name in values(call.params, *keys):
                _add(named, kind, name if name.startswith("arn:") else self.arn(call.service, kind, name))
        if reader := self._readers.get(call.service):
            for kind, arn in reader(call):
                _add(named, kind, arn)
        return named

    def arn(self, service: str, kind: str, *values: str) -> str:
        """Return the ARN of a resource. `kind` is its resource type in AWS's reference, such as `instance`.

        `values` are the names and ids in the ARN, in order; * replaces missing ones.
        """
        left = list(values)
        fixed = {"Partition": "aws", "Region": REGION, "Account": ACCOUNT}

        def fill(match: re.Match[str]) -> str:
            return fixed.get(match[1]) or (left.pop(0) if left else "*")

        return _VARIABLE.sub(fill, _pattern(service, kind))

    def unnamed(self, service: str, kind: str) -> str:
        """Return an ARN for a call that names no resource. Only wildcards match its region and account."""
        return self.arn(service, kind).replace(REGION, _UNNAMED).replace(ACCOUNT, _UNNAMED)

    def _ec2(self, call: Call) -> Iterator[tuple[str, str]]:
        for text in strings(call.params):
            if match := _EC2_ID.fullmatch(text):
                yield _EC2_IDS[match[1]], self.arn("ec2", _EC2_IDS[match[1]], text)
        for name in values(call.params, "LaunchTemplateName"):
            known = self._backend("ec2").launch_template_name_to_ids.get(name, "*")
            yield "launch-template", self.arn("ec2", "launch-template", known)
        for name in values(call.params, "GroupName") if "PlacementGroup" in call.operation else ():
            yield "placement-group", self.arn("ec2", "placement-group", name)

    def _autoscaling(self, call: Call) -> Iterator[tuple[str, str]]:
        backend = self._backend("autoscaling")
        groups = backend.autoscaling_groups
        names = list(values(call.params, "AutoScalingGroupName", "AutoScalingGroupNames", "Tags.ResourceId"))
        for instance in values(call.params, "InstanceId", "InstanceIds"):
            names += [
                each.name
                for each in groups.values()
                if any(state.instance.id == instance for state in each.instance_states)
            ]
        for policy in values(call.params, "PolicyName"):
            names += [
                each.auto_scaling_group_name
                for each in backend.policies.values()
                if policy in (each.name, each.arn) and not names
            ]
        for name in names:
            known = groups[name].arn if name in groups else self.arn("autoscaling", "autoScalingGroup", "*", name)
            yield "autoScalingGroup", known

    def _cloudformation(self, call: Call) -> Iterator[tuple[str, str]]:
        sets = [name for name in values(call.params, "ChangeSetName") if name.startswith("arn:")]
        names = list(values(call.params, "StackName"))
        # If a change set is named by its ARN, `_stack_id` finds its stack.
        for name in names or [self._stack_id(each) for each in sets]:
            known = name if name.startswith("arn:") else self._stack_id(name)
            yield "stack", known or self.arn("cloudformation", "stack", name or "*")

    def _logs(self, call: Call) -> Iterator[tuple[str, str]]:
        """Yield type and ARN of the log groups that a call names, and of the named streams, or else an empty stream.

        A group's ARN ends with an empty stream too, because policies name groups with the suffix `:*`, except for calls
        about tags ("CloudWatch Logs resources and operations" in the user guide).
        """
        for given in values(call.params, "logGroupName", "logGroupNames", "logGroupIdentifier"):
            group = given.rpartition(":log-group:")[2].removesuffix(":*")
            for stream in list(values(call.params, "logStreamName")) or [""]:
                yield "log-stream", self.arn("logs", "log-stream", group, stream)
            plain = call.operation in ("CreateLogGroup", "TagLogGroup", "UntagLogGroup", "ListTagsLogGroup")
            yield "log-group", self.arn("logs", "log-group", group) + ("" if plain else ":log-stream:")
        for arn in values(call.params, "resourceArn"):
            yield "log-group", arn

    def _iam(self, call: Call) -> Iterator[tuple[str, str]]:
        iam = self._backend("iam")
        known: dict[str, tuple[str, Iterable[Any]]] = {
            "RoleName": ("role", iam.roles.values()),
            "UserName": ("user", iam.users.values()),
            "GroupName": ("group", iam.groups.values()),
            "InstanceProfileName": ("instance-profile", iam.instance_profiles.values()),
        }
        path = next(values(call.params, "Path"), "/").lstrip("/")
        for key, (kind, made) in known.items():
            for name in values(call.params, key):
                found = next((each.path.lstrip("/") for each in made if each.name == name), path)
                yield kind, self.arn("iam", kind, f"{found}{name}")
        if call.operation == "CreatePolicy":
            yield "policy", self.arn("iam", "policy", f"{path}{call.params['PolicyName']}")

    def _kms(self, call: Call) -> Iterator[tuple[str, str]]:
        for each in values(call.params, "KeyId", "TargetKeyId", "ResourceArn"):
            yield "key", self.key(each)

    def key(self, id: str) -> str:
        """Return the ARN of a KMS key by its id, ARN or alias. The key need not exist; * replaces an unknown alias."""
        kms = self._backend("kms")
        alias = kms.get_alias_name(id)
        known = kms.get_key_id_from_alias(alias) if alias.startswith("alias/") else id
        return self.arn("kms", "key", *([kms.get_key_id(known)] if known else []))

    def _sns(self, call: Call) -> Iterator[tuple[str, str]]:
        for subscription in values(call.params, "SubscriptionArn"):
            yield "topic", subscription.rpartition(":")[0]
        if call.operation == "CreateTopic":
            yield "topic", self.arn("sns", "topic", str(call.params["Name"]))

    def _sqs(self, call: Call) -> Iterator[tuple[str, str]]:
        for url in values(call.params, "QueueUrl"):
            yield "queue", self.arn("sqs", "queue", url.rpartition("/")[2])

    def _ssm(self, call: Call) -> Iterator[tuple[str, str]]:
        for name in values(call.params, "Name", "Names", "Path") if "Parameter" in call.operation else ():
            arn = name if name.startswith("arn:") else self.arn("ssm", "parameter", name.lstrip("/"))
            yield "parameter", arn.replace(f":{ACCOUNT}:", "::") if name.startswith("/aws/service/") else arn
        for name in values(call.params, "DocumentName"):
            arn = self.arn("ssm", "document", name)
            yield "document", arn.replace(ACCOUNT, "") if name.startswith(("AWS-", "Amazon")) else arn

    def _efs(self, call: Call) -> Iterator[tuple[str, str]]:
        targets = self._backend("efs").mount_targets_by_id
        for each in values(call.params, "MountTargetId"):
            if each in targets:
                yield "file-system", self.arn("elasticfilesystem", "file-system", targets[each].file_system_id)

    def _quotas(self, call: Call) -> Iterator[tuple[str, str]]:
        service, code = (next(values(call.params, key), "") for key in ("ServiceCode", "QuotaCode"))
        if service and code:
            yield "quota", self.arn("servicequotas", "quota", service, code)


def values(params: Mapping[str, Any], *keys: str) -> Iterator[str]:
    """Yield the strings at the given keys, which may be paths through objects and lists (`Tags.ResourceId`).

    Missing keys, and values that are not strings, are skipped.
    """
    for key in keys:
        first, _, rest = key.partition(".")
        for each in _listed(params.get(first)):
            if rest and isinstance(each, Mapping):
                yield from values(each, rest)
            elif not rest and isinstance(each, str):
                yield each


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a value at any depth, such as a request's parameters, but not the keys."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from strings(each)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _add(named: Named, kind: str, arn: str) -> None:
    if arn not in named.setdefault(kind, []):
        named[kind].append(arn)

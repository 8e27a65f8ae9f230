"""The resources that a request is about, as ARNs, by their types in AWS's service authorization reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from localcloud.api.permissions import reference
from localcloud.api.permissions.reference import Action
from localcloud.api.permissions.request import Call

Named = dict[str, list[str]]
"""ARNs by type of resource."""

# Types of EC2's resources by the prefix of their ids.
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
# A resource that a request does not name is asked for as this: of all patterns for it only * matches.
_UNNAMED: Final = "unnamed"


class UnknownResourceError(Exception):
    """Report a call of which it is not known what resource it is about: it cannot be decided."""


class Resources:
    """Find the resources of calls to one account and region."""

    def __init__(
        self, *, account: str, region: str, backend: Callable[[str], Any], stack_id: Callable[[str], str]
    ) -> None:
        self._account, self._region, self._backend, self._stack_id = account, region, backend, stack_id
        self._readers: dict[str, Callable[[Call], Named]] = {
            "autoscaling": self._autoscaling,
            "budgets": self._budgets,
            "cloudformation": self._cloudformation,
            "cloudwatch": self._cloudwatch,
            "ec2": self._ec2,
            "ecr": self._ecr,
            "elasticfilesystem": self._efs,
            "fsx": self._fsx,
            "iam": self._iam,
            "kms": self._kms,
            "logs": self._logs,
            "servicequotas": self._quotas,
            "sns": self._sns,
            "sqs": self._sqs,
            "ssm": self._ssm,
            "sts": self._sts,
        }

    def of(self, call: Call, action: Action) -> list[str]:
        """Return the ARNs to ask for; `*` alone for an action that knows no resources.

        A * in an ARN stands for what does not exist yet. Raises UnknownResourceError.
        """
        if not action.resources:
            return ["*"]
        reader = self._readers.get(call.service)
        if reader is None:
            raise UnknownResourceError(f"the embedded cloud does not know what {action.name} is about")
        named = reader(call)
        found: list[str] = []
        for kind, required in action.resources.items():
            found += named.get(kind, []) or ([self.arn(call.service, kind)] if required else [])
        return found or [self.unnamed(call.service, next(iter(action.resources)))]

    def arn(self, service: str, kind: str, *values: str) -> str:
        """Return the ARN of a resource, with * for each part that is not given."""
        left = list(values)
        fixed = {"Partition": "aws", "Region": self._region, "Account": self._account}

        def fill(match: re.Match[str]) -> str:
            return fixed.get(match[1]) or (left.pop(0) if left else "*")

        return _VARIABLE.sub(fill, reference.pattern(service, kind))

    def unnamed(self, service: str, kind: str) -> str:
        """Return an ARN for a call that names no resource, which * allows and no narrower pattern."""
        return self.arn(service, kind).replace(self._region, _UNNAMED).replace(self._account, _UNNAMED)

    def _ec2(self, call: Call) -> Named:
        named: Named = {}
        for text in strings(call.params):
            match = _EC2_ID.fullmatch(text)
            if match:
                _add(named, _EC2_IDS[match[1]], self.arn("ec2", _EC2_IDS[match[1]], text))
        for key in ("KeyName", "PlacementGroup.GroupName", "Placement.GroupName"):
            for name in values(call.params, key):
                _add(named, "key-pair" if key == "KeyName" else "placement-group", self._ec2_named(key, name))
        for name in values(call.params, "LaunchTemplateName"):
            known = self._backend("ec2").launch_template_name_to_ids.get(name, "*")
            _add(named, "launch-template", self.arn("ec2", "launch-template", known))
        if "PlacementGroup" in call.operation:
            for name in values(call.params, "GroupName"):
                _add(named, "placement-group", self._ec2_named("", name))
        return named

    def _ec2_named(self, key: str, name: str) -> str:
        return self.arn("ec2", "key-pair" if key == "KeyName" else "placement-group", name)

    def _autoscaling(self, call: Call) -> Named:
        names = list(values(call.params, "AutoScalingGroupName", "AutoScalingGroupNames", "Tags.ResourceId"))
        groups = self._backend("autoscaling").autoscaling_groups
        for instance in values(call.params, "InstanceId", "InstanceIds"):
            names += [
                each.name
                for each in groups.values()
                if any(state.instance.id == instance for state in each.instance_states)
            ]
        for policy in values(call.params, "PolicyName"):
            names += [
                each.auto_scaling_group_name
                for each in self._backend("autoscaling").policies.values()
                if policy in (each.name, each.arn) and not names
            ]
        arns = [
            groups[name].arn if name in groups else self.arn("autoscaling", "autoScalingGroup", "*", name)
            for name in dict.fromkeys(names)
        ]
        return {"autoScalingGroup": arns}

    def _cloudformation(self, call: Call) -> Named:
        sets = [name for name in values(call.params, "ChangeSetName") if name.startswith("arn:")]
        names = list(values(call.params, "StackName"))
        # Of a change set that is named by its ARN alone, it is the stack's name that the account knows.
        names += [self._stack_id(each) for each in sets if not names]
        return {"stack": [self._stack(name) for name in names]}

    def _stack(self, name: str) -> str:
        if name.startswith("arn:"):
            return name
        return self._stack_id(name) or self.arn("cloudformation", "stack", name or "*")

    def _cloudwatch(self, call: Call) -> Named:
        return {
            "alarm": [self.arn("cloudwatch", "alarm", each) for each in values(call.params, "AlarmName", "AlarmNames")],
            "dashboard": [
                self.arn("cloudwatch", "dashboard", each)
                for each in values(call.params, "DashboardName", "DashboardNames")
            ],
        }

    def _logs(self, call: Call) -> Named:
        """Return the group with an empty stream behind it, unless one is named.

        A policy names groups with `:*` at their end, but for the calls about tags ("CloudWatch Logs resources and
        operations" in the user guide): that is what is asked for.
        """
        streams = list(values(call.params, "logStreamName")) or [""]
        named: Named = {}
        for given in values(call.params, "logGroupName", "logGroupNames", "logGroupIdentifier"):
            group = given.rpartition(":log-group:")[2].removesuffix(":*")
            for stream in streams:
                _add(named, "log-stream", self.arn("logs", "log-stream", group, stream))
            plain = call.operation in ("CreateLogGroup", "TagLogGroup", "UntagLogGroup", "ListTagsLogGroup")
            arn = self.arn("logs", "log-group", group)
            _add(named, "log-group", arn if plain else f"{arn}:log-stream:")
        for arn in values(call.params, "resourceArn"):
            _add(named, "log-group", arn)
        return named

    def _iam(self, call: Call) -> Named:
        iam, named = self._backend("iam"), Named()
        known: dict[str, tuple[str, Mapping[str, Any]]] = {
            "RoleName": ("role", {each.name: each for each in iam.roles.values()}),
            "UserName": ("user", iam.users),
            "GroupName": ("group", iam.groups),
            "InstanceProfileName": ("instance-profile", {each.name: each for each in iam.instance_profiles.values()}),
        }
        path = next(values(call.params, "Path"), "/").lstrip("/")
        for key, (kind, made) in known.items():
            for name in values(call.params, key):
                found = made[name].path.lstrip("/") if name in made else path
                _add(named, kind, self.arn("iam", kind, f"{found}{name}"))
        for arn in values(call.params, "PolicyArn"):
            _add(named, "policy", arn)
        if call.operation == "CreatePolicy":
            _add(named, "policy", self.arn("iam", "policy", f"{path}{call.params['PolicyName']}"))
        return named

    def _sts(self, call: Call) -> Named:
        return {"role": list(values(call.params, "RoleArn"))}

    def _kms(self, call: Call) -> Named:
        return {"key": [self.key(each) for each in values(call.params, "KeyId", "TargetKeyId", "ResourceArn")]}

    def key(self, id: str) -> str:
        """Return the ARN of a key that is named by id, ARN or alias."""
        kms = self._backend("kms")
        return self.arn("kms", "key", str(kms.get_key_id(kms.any_id_to_key_id(id))))

    def _sns(self, call: Call) -> Named:
        arns = list(values(call.params, "TopicArn", "ResourceArn"))
        for subscription in values(call.params, "SubscriptionArn"):
            arns.append(subscription.rpartition(":")[0])
        if call.operation == "CreateTopic":
            arns.append(self.arn("sns", "topic", str(call.params["Name"])))
        return {"topic": arns}

    def _sqs(self, call: Call) -> Named:
        names = [url.rpartition("/")[2] for url in values(call.params, "QueueUrl")]
        names += values(call.params, "QueueName")
        return {"queue": [self.arn("sqs", "queue", name) for name in names]}

    def _ssm(self, call: Call) -> Named:
        named: Named = {}
        if "Parameter" in call.operation:
            for name in values(call.params, "Name", "Names", "Path"):
                _add(named, "parameter", self._parameter(name))
        for name in values(call.params, "DocumentName"):
            owned = name.startswith(("AWS-", "Amazon"))
            arn = self.arn("ssm", "document", name)
            _add(named, "document", arn.replace(self._account, "") if owned else arn)
        for target in values(call.params, "Target"):
            _add(named, "instance", self.arn("ssm", "instance", target))
        for session in values(call.params, "SessionId"):
            _add(named, "session", self.arn("ssm", "session", session))
        return named

    def _parameter(self, name: str) -> str:
        if name.startswith("arn:"):
            return name
        arn = self.arn("ssm", "parameter", name.lstrip("/"))
        return arn.replace(f":{self._account}:", "::") if name.startswith("/aws/service/") else arn

    def _efs(self, call: Call) -> Named:
        efs = self._backend("efs")
        ids = [*values(call.params, "FileSystemId", "ResourceId")]
        ids += [
            efs.mount_targets_by_id[each].file_system_id
            for each in values(call.params, "MountTargetId")
            if each in efs.mount_targets_by_id
        ]
        return {"file-system": [self.arn("elasticfilesystem", "file-system", each) for each in ids]}

    def _fsx(self, call: Call) -> Named:
        ids = values(call.params, "FileSystemId", "FileSystemIds")
        return {"file-system": [self.arn("fsx", "file-system", each) for each in ids]}

    def _ecr(self, call: Call) -> Named:
        names = values(call.params, "repositoryName", "repositoryNames")
        return {"repository": [self.arn("ecr", "repository", each) for each in names]}

    def _budgets(self, call: Call) -> Named:
        names = values(call.params, "BudgetName", "Budget.BudgetName", "NewBudget.BudgetName")
        return {"budget": [self.arn("budgets", "budget", each) for each in names]}

    def _quotas(self, call: Call) -> Named:
        service, code = (next(values(call.params, key), "") for key in ("ServiceCode", "QuotaCode"))
        return {"quota": [self.arn("servicequotas", "quota", service, code)] if service and code else []}


def values(params: Mapping[str, Any], *keys: str) -> Iterator[str]:
    """Yield the texts under keys, which may lead through objects and lists (`Tags.ResourceId`)."""
    for key in keys:
        first, _, rest = key.partition(".")
        for each in _listed(params.get(first)):
            if rest and isinstance(each, Mapping):
                yield from values(each, rest)
            elif not rest and isinstance(each, str):
                yield each


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a request's parameters."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from strings(each)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _add(named: Named, kind: str, arn: str) -> None:
    if arn not in named.setdefault(kind, []):
        named[kind].append(arn)

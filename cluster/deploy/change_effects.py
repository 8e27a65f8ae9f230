"""Describe the effects of changes: the kind of resource, what is lost with it, and whether a live run would stop."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cluster.deploy.changed_resources import ADDED, CHANGED, GROUP, PERHAPS_REPLACED, REMOVED, REPLACED, Change
from cluster.terminal.tables import Table

TEMPLATE: Final = "AWS::EC2::LaunchTemplate"

# Changes of a group for which an update policy replaces its instances (CloudFormation user guide, UpdatePolicy).
_NODE_PROPERTIES: Final = frozenset(
    {
        "AvailabilityZones",
        "LaunchConfigurationName",
        "LaunchTemplate",
        "MixedInstancesPolicy",
        "PlacementGroup",
        "VPCZoneIdentifier",
    }
)
_MAX_ADDED: Final = 8
"""Maximum number of additions to list. More are counted by kind."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A description of one resource type."""

    noun: str
    loss: str = ""
    """The loss if a resource is replaced or removed and not kept, in words."""
    stops_run: bool = False
    """Whether a live run stops if such a resource is replaced or removed."""


_FIREWALL = Kind(noun="firewall rule", loss="the traffic that it allows stops", stops_run=True)
_NODES = Kind(noun="group of nodes", loss="ALL ITS NODES ARE TERMINATED", stops_run=True)
_WAY_OUT = "the route out through it is lost"

KINDS: Final[Mapping[str, Kind]] = {
    GROUP: _NODES,
    "AWS::AutoScaling::LifecycleHook": Kind(noun="lifecycle hook"),
    "AWS::AutoScaling::ScalingPolicy": Kind(noun="scaling policy"),
    "AWS::AutoScaling::ScheduledAction": Kind(noun="scheduled action"),
    "AWS::Budgets::Budget": Kind(noun="budget"),
    "AWS::Budgets::BudgetsAction": Kind(noun="budget action"),
    "AWS::CDK::Metadata": Kind(noun="metadata"),
    "AWS::CloudWatch::Alarm": Kind(noun="alarm"),
    "AWS::CloudWatch::Dashboard": Kind(noun="dashboard"),
    "AWS::EC2::EIP": Kind(noun="elastic address", loss="the address changes"),
    "AWS::EC2::FlowLog": Kind(noun="flow log"),
    "AWS::EC2::InternetGateway": Kind(noun="internet gateway", loss=_WAY_OUT),
    TEMPLATE: Kind(noun="launch template"),
    "AWS::EC2::NatGateway": Kind(noun="NAT gateway", loss=_WAY_OUT),
    "AWS::EC2::PlacementGroup": Kind(noun="placement group"),
    "AWS::EC2::Route": Kind(noun="route", loss=_WAY_OUT),
    "AWS::EC2::RouteTable": Kind(noun="route table", loss=_WAY_OUT),
    "AWS::EC2::SecurityGroup": Kind(noun="security group", loss="the traffic that it allows stops", stops_run=True),
    "AWS::EC2::SecurityGroupEgress": _FIREWALL,
    "AWS::EC2::SecurityGroupIngress": _FIREWALL,
    "AWS::EC2::Subnet": Kind(noun="subnet", loss="THE NODES IN IT ARE TERMINATED", stops_run=True),
    "AWS::EC2::SubnetRouteTableAssociation": Kind(noun="subnet's routing", loss=_WAY_OUT),
    "AWS::EC2::VPC": Kind(noun="network (VPC)", loss="EVERYTHING IN IT IS TERMINATED", stops_run=True),
    "AWS::EC2::VPCEndpoint": Kind(noun="VPC endpoint", loss="the route to the service through it is lost"),
    "AWS::EC2::VPCGatewayAttachment": Kind(noun="internet gateway's attachment", loss=_WAY_OUT),
    "AWS::EFS::FileSystem": Kind(
        noun="shared file system", loss="ALL RUNS, CHECKPOINTS AND DATA ON IT ARE DELETED", stops_run=True
    ),
    "AWS::EFS::MountTarget": Kind(noun="mount target", loss="the nodes lose the shared file system", stops_run=True),
    "AWS::FSx::DataRepositoryAssociation": Kind(noun="link between Lustre and S3", loss="files are no longer exported"),
    "AWS::FSx::FileSystem": Kind(
        noun="Lustre file system", loss="DATA ON IT THAT IS NOT YET EXPORTED IS DELETED", stops_run=True
    ),
    "AWS::IAM::InstanceProfile": Kind(noun="instance profile", loss="running nodes lose their permissions"),
    "AWS::IAM::ManagedPolicy": Kind(noun="permissions", loss="the nodes lose these permissions"),
    "AWS::IAM::Policy": Kind(noun="permissions", loss="the nodes lose these permissions"),
    "AWS::IAM::Role": Kind(noun="role", loss="running nodes lose their permissions"),
    "AWS::KMS::Alias": Kind(noun="key alias"),
    "AWS::KMS::Key": Kind(noun="encryption key", loss="DATA ENCRYPTED WITH IT BECOMES UNREADABLE", stops_run=True),
    "AWS::Logs::LogGroup": Kind(noun="log group", loss="THE LOGS IN IT ARE DELETED"),
    "AWS::S3::Bucket": Kind(noun="bucket", loss="THE OBJECTS IN IT ARE DELETED", stops_run=True),
    "AWS::S3::BucketPolicy": Kind(noun="bucket policy"),
    "AWS::SNS::Subscription": Kind(noun="subscription"),
    "AWS::SNS::Topic": Kind(noun="topic"),
    "AWS::SSM::Parameter": Kind(noun="parameter"),
}


def noun(type_name: str) -> str:
    """Return a readable name for a resource type, or the type itself if there is none."""
    kind = KINDS.get(type_name)
    return kind.noun if kind else type_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect:
    """The described effect of one change."""

    action: str
    noun: str
    what: str
    """Noun and path of the construct."""
    details: str
    stops_run: str
    """Why a live run would stop; "" if it would not."""
    loses: bool
    """Whether data or access is lost."""


def describe_effect(change: Change, template: Mapping[str, Any], size: int | None) -> Effect:
    """Describe the effect of a change.

    `template` is the template after the change. `size` is a group's current desired size, None for other resources.
    """
    kind = KINDS.get(change.type, Kind(noun=change.type))
    what = f"{kind.noun} {change.path}"
    if change.ends:
        return _describe_loss(change, kind, what)
    if change.action == ADDED:
        return Effect(action=ADDED, noun=kind.noun, what=what, details="", stops_run="", loses=False)
    details, reason = [", ".join(map(str, change.differences))], ""
    if change.type == GROUP:
        declaration = template.get("Resources", {}).get(change.logical_id, {})
        text, reason = _describe_group(change, declaration, size)
        details.append(text)
    elif change.type == TEMPLATE:
        details.append("running nodes keep their old settings")
    details += [_policy(name, template, change.logical_id) for name in change.policies]
    text = "; ".join(filter(None, details)) or ", ".join(sorted(change.properties)) or "metadata"
    return Effect(
        action=CHANGED,
        noun=kind.noun,
        what=what,
        details=text,
        stops_run=f"{what}: {reason}" if reason else "",
        loses=bool(reason),
    )


def describe_login_user(before: str, after: str) -> Effect:
    """Describe the effect of a changed login user: running nodes do not have the new user."""
    details = (
        f"{before} -> {after}; running nodes have only {before} and reject {after}, so the tasks no longer reach the "
    )
    details += f"master until its instance is replaced. `--set login_user={before}` keeps the user"
    return Effect(action=CHANGED, noun="login user", what="login user", details=details, stops_run="", loses=True)


def _describe_loss(change: Change, kind: Kind, what: str) -> Effect:
    """Describe the effect of a change that removes or replaces a resource. `what` is the resource's noun and path."""
    because = f" because {_listed(change.recreating)} changes" if change.recreating else ""
    if change.action == REMOVED:
        details = [] if not change.kept else ["it stays in the account, unused"]
    else:
        empty = " and EMPTY" if kind.loss.endswith("DELETED") else ""
        details = [f"recreated{empty}{because}"]
        if change.action == PERHAPS_REPLACED:
            details[0] = f"may be recreated{empty} (known only during the change){because}"
        if change.kept:
            details.append("the old one stays in the account, unused")
    if kind.loss and not change.kept:
        details.append(kind.loss)
    loses = bool(kind.loss) and not change.kept
    # The nodes stop using a replaced or removed resource even if it is kept.
    reason = f"{what}: {change.action.lower() if change.action != REMOVED else 'removed'}" if kind.stops_run else ""
    return Effect(
        action=change.action, noun=kind.noun, what=what, details="; ".join(details), stops_run=reason, loses=loses
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)


def _describe_group(change: Change, declaration: Mapping[str, Any], size: int | None) -> tuple[str, str]:
    """Return two texts: what happens to a group's nodes, and why a run would not survive it. Each may be "".

    `declaration` is the group in the new template, `size` its current desired size, None if it is unknown.
    """
    texts, reasons = [], []
    policy = declaration.get("UpdatePolicy") or {}
    obsolete = sorted(change.properties & _NODE_PROPERTIES)
    replacing = "AutoScalingRollingUpdate" in policy or _true(
        policy.get("AutoScalingReplacingUpdate", {}).get("WillReplace")
    )
    nodes = "its nodes" if size is None else f"its {size} nodes" if size != 1 else "its node"
    if obsolete and replacing and size != 0:
        texts.append(f"{nodes} ARE REPLACED by the update policy, because {_listed(obsolete)} changes")
        reasons.append(f"{nodes} are replaced")
    elif obsolete:
        texts.append("applies to new nodes; running nodes do not change")
    after = _size_after(change, declaration.get("Properties", {}), size)
    if size is not None and after is not None and after < size:
        texts.append(f"{size - after} of {size} nodes ARE TERMINATED")
        reasons.append(f"{size - after} of {size} nodes are terminated")
    elif size is not None and after is not None and after > size:
        texts.append(f"{after - size} more nodes start")
    return "; ".join(texts), " and ".join(reasons)


def _size_after(change: Change, properties: Mapping[str, Any], size: int | None) -> int | None:
    """Return how many nodes a group will have after the change; None if its present or new size is unknown.

    `size` is the present desired size. `properties` are the group's properties in the new template.
    """
    if size is None:
        return None
    wanted = _number(properties.get("DesiredCapacity")) if "DesiredCapacity" in change.properties else size
    low, high = _number(properties.get("MinSize")), _number(properties.get("MaxSize"))
    if wanted is None:
        return None
    if high is not None and "MaxSize" in change.properties:
        wanted = min(wanted, high)
    if low is not None and "MinSize" in change.properties:
        wanted = max(wanted, low)
    return wanted


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else None


def _true(value: object) -> bool:
    return str(value).lower() == "true"


def _policy(name: str, template: Mapping[str, Any], logical_id: str) -> str:
    """Describe the change of a resource's policy attribute, such as DeletionPolicy; "" if it is not worth showing.

    `template` is the template after the change.
    """
    if name == "DeletionPolicy":
        declared = str(template.get("Resources", {}).get(logical_id, {}).get(name, "Delete"))
        return "is kept when the stack is deleted" if declared.startswith("Retain") else "IS DELETED WITH THE STACK"
    return {
        "UpdateReplacePolicy": "",  # set together with DeletionPolicy, with the same meaning for a replacement
        "CreationPolicy": "",  # used only while a group is created
        "UpdatePolicy": "the update policy changes",
    }.get(name, name)


def change_table(stack: str, effects: Sequence[Effect]) -> Table:
    """Build the table of effects, in their order, additions last. More than _MAX_ADDED additions are counted by kind.

    Without effects, a row says that no resource changes.
    """
    rows = [(each.action, each.what, each.details) for each in effects if each.action != ADDED]
    added = [each for each in effects if each.action == ADDED]
    if len(added) > _MAX_ADDED:
        rows.append((ADDED, f"{len(added)} resources", ", ".join(_counted(added))))
    else:
        rows += [(ADDED, each.what, each.details) for each in added]
    rows = rows or [(CHANGED, "outputs, parameters or metadata", "no resource changes")]
    return Table(title=f"stack {stack}: changes", columns=("change", "what", "details"), rows=tuple(rows))


def _counted(effects: Sequence[Effect]) -> Iterator[str]:
    nouns = Counter(each.noun for each in effects)
    for word, count in nouns.items():
        yield word if count == 1 else f"{word} ({count})"


def summary(effects: Sequence[Effect]) -> str:
    """Count the effects by action in one line: `1 REPLACED, 2 changed, 3 added`. Without effects: "outputs or metadata
    only".
    """
    counts = Counter(each.action for each in effects)
    order = (REMOVED, REPLACED, PERHAPS_REPLACED, CHANGED, ADDED)
    return ", ".join(f"{counts[action]} {action}" for action in order if counts[action]) or "outputs or metadata only"

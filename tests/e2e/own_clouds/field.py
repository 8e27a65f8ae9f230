"""Deploy clusters next to each other on an embedded cloud through CloudFormation, and scan the network from everywhere.

The programs in this module run on the cloud's laptop and in its hosts. Each takes JSON and prints JSON.
"""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.stacks.clusters.reachability import Packet, Place, groups_of_nodes, groups_of_targets, packets
from tests.stacks.clusters.template import Template
from tests.waiting import PATIENCE_S

LAPTOP_ADDRESS: Final = "100.64.0.2"
OUTSIDE_ADDRESS: Final = "198.18.255.10"
IMAGE: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
"""One image for all hosts: the image makes no difference to the network."""
LAPTOP: Final = Place(name="laptop", address=LAPTOP_ADDRESS)
STRANGER: Final = Place(name="stranger", address=OUTSIDE_ADDRESS)

DEPLOY: Final = """
import boto3, json, sys, time
given = json.load(open(sys.argv[1]))
formation, ec2, iam, ssm, s3 = (boto3.client(name) for name in ("cloudformation", "ec2", "iam", "ssm", "s3"))
s3.create_bucket(Bucket="templates")  # CloudFormation takes 51,200 bytes at most from a call itself
ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String", Overwrite=True)
for key in {item["Properties"]["LaunchTemplateData"]["KeyName"] for each in given.values()
            for item in each["template"]["Resources"].values() if item["Type"] == "AWS::EC2::LaunchTemplate"}:
    if not ec2.describe_key_pairs(Filters=[{"Name": "key-name", "Values": [key]}])["KeyPairs"]:
        ec2.create_key_pair(KeyName=key)
anything = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
known = {policy["PolicyName"] for policy in iam.list_policies(Scope="Local")["Policies"]}
for name in {item["Properties"]["PermissionsBoundary"].rpartition("/")[2] for each in given.values()
             for item in each["template"]["Resources"].values()
             if item["Type"] == "AWS::IAM::Role" and "PermissionsBoundary" in item["Properties"]} - known:
    iam.create_policy(PolicyName=name, PolicyDocument=json.dumps(anything))
answer = {}
for name, each in given.items():
    s3.put_object(Bucket="templates", Key=name, Body=json.dumps(each["template"]))
    values = [{"ParameterKey": key, "ParameterValue": value} for key, value in each["parameters"].items()]
    try:
        formation.create_stack(StackName=name, Parameters=values,
                               TemplateURL=f"https://templates.s3.us-east-1.amazonaws.com/{name}",
                               Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"])
    except formation.exceptions.ClientError as error:
        answer[name] = {"refused": str(error)}
for name in given.keys() - answer.keys():
    while True:
        status = formation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        if not status.endswith("_IN_PROGRESS"):
            break
        time.sleep(0.3)
    events = formation.describe_stack_events(StackName=name)["StackEvents"]
    why = [event for event in events if "FAILED" in event["ResourceStatus"]]
    why = [event["LogicalResourceId"] + ": " + event.get("ResourceStatusReason", "") for event in why]
    resources = formation.describe_stack_resources(StackName=name)["StackResources"]
    answer[name] = {"status": status, "why": why,
                    "ids": {r["LogicalResourceId"]: r.get("PhysicalResourceId", "") for r in resources}}
print(json.dumps(answer))
"""
FIND: Final = """
import boto3, json
ec2, efs, fsx = (boto3.client(name) for name in ("ec2", "efs", "fsx"))
found, running = [], [{"Name": "instance-state-name", "Values": ["running"]}]
for instance in (i for page in ec2.describe_instances(Filters=running)["Reservations"] for i in page["Instances"]):
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    found.append({"kind": tags["deepcdk:role"], "cluster": tags["deepcdk:cluster"], "id": instance["InstanceId"],
                  "subnet": instance["SubnetId"], "address": instance["PrivateIpAddress"],
                  "public": instance.get("PublicIpAddress", "")})
for system in efs.describe_file_systems()["FileSystems"]:
    cluster = next(tag["Value"] for tag in system["Tags"] if tag["Key"] == "deepcdk:cluster")
    for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]:
        found.append({"kind": "efs", "cluster": cluster, "id": target["MountTargetId"], "subnet": target["SubnetId"],
                      "address": target["IpAddress"], "public": ""})
for system in fsx.describe_file_systems()["FileSystems"]:
    cluster = next(tag["Value"] for tag in system["Tags"] if tag["Key"] == "deepcdk:cluster")
    for card in ec2.describe_network_interfaces(NetworkInterfaceIds=system["NetworkInterfaceIds"])["NetworkInterfaces"]:
        found.append({"kind": "fsx", "cluster": cluster, "id": system["FileSystemId"], "subnet": card["SubnetId"],
                      "address": card["PrivateIpAddress"], "public": ""})
print(json.dumps(found))
"""
SCAN: Final = """
import errno, json, selectors, socket, sys, time
given = json.loads(sys.stdin.read())
reached, waiting = [], selectors.DefaultSelector()
for number, (protocol, address, port) in enumerate(given):
    tried = socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    tried.setblocking(False)
    code = tried.connect_ex((address, port))
    if protocol == "udp" and code == 0:
        tried.send(b"?")
        waiting.register(tried, selectors.EVENT_READ, number)
    elif code in (0, errno.ECONNREFUSED):
        reached.append(number)
    elif code == errno.EINPROGRESS:
        waiting.register(tried, selectors.EVENT_WRITE, number)
deadline = time.monotonic() + float(sys.argv[1])
while waiting.get_map() and time.monotonic() < deadline:
    for key, _ in waiting.select(deadline - time.monotonic()):
        waiting.unregister(key.fileobj)
        if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
            reached.append(key.data)
print(json.dumps(sorted(reached)))
"""
"""A refused packet counts as received, because it arrived; a dropped one gives no answer until this time is over."""
SILENCE_S: Final = 4.0
"""Three times as long as a retransmission; an answer takes less than a millisecond."""


def deploy(cloud: EmbeddedCloud, folder: Path, templates: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Create stacks with these names; return the status and resources of each, or the reason for its rejection."""
    given = {
        name: {
            "template": document,
            "parameters": {
                key: IMAGE
                for key, declared in document.get("Parameters", {}).items()
                if declared["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
            },
        }
        for name, document in templates.items()
    }
    file = folder / "stacks.json"
    file.write_text(json.dumps(given), encoding="utf-8")
    answer: dict[str, Any] = json.loads(cloud.laptop("python3", "-c", DEPLOY, str(file)).stdout)
    return answer


def places(
    cloud: EmbeddedCloud, templates: dict[str, Template], ids: dict[str, dict[str, str]]
) -> dict[str, list[Place]]:
    """Return the members of each cluster; a node's name ends with its instance id.

    For each cluster, `ids` maps a subnet's EC2 id to its id in the template.
    """
    found: dict[str, list[Place]] = {name: [] for name in templates}
    for each in json.loads(cloud.laptop("python3", "-c", FIND).stdout):
        found[each["cluster"]].append(
            Place(
                name=f"{each['kind']} {each['id']}",
                address=each["address"],
                groups=_groups(templates[each["cluster"]], each["kind"]),
                subnet=ids[each["cluster"]][each["subnet"]],
                public=each["public"],
            )
        )
    return found


def _groups(template: Template, kind: str) -> frozenset[str]:
    nodes = {"master": "MasterGroup", "worker": "WorkerGroup"}
    if kind in nodes:
        return groups_of_nodes(template, nodes[kind])
    targets = {"efs": ("AWS::EFS::MountTarget", "SecurityGroups"), "fsx": ("AWS::FSx::FileSystem", "SecurityGroupIds")}
    return groups_of_targets(template, *targets[kind])


def scan(
    cloud: EmbeddedCloud, templates: dict[str, Template], found: dict[str, list[Place]], only: str = ""
) -> dict[str, dict[Packet, bool]]:
    """Send every packet of every cluster, from all places or from one alone; return whether each packet arrived."""
    tried: dict[str, list[tuple[str, Packet]]] = {}
    for name, template in templates.items():
        everybody = [LAPTOP, STRANGER, *found[name]]
        sources = [place for place in everybody if not place.name.startswith(("efs", "fsx"))]
        sources = [place for place in sources if only in ("", place.name)]
        for packet in packets(template, sources, everybody):
            tried.setdefault(packet.source, []).append((name, packet))
    with ThreadPoolExecutor(8) as pool:
        answers = dict(
            zip(tried, pool.map(lambda source: _scan_from(cloud, source, tried[source]), tried), strict=True)
        )
    results: dict[str, dict[Packet, bool]] = {name: {} for name in templates}
    for source, reached in answers.items():
        for number, (name, packet) in enumerate(tried[source]):
            results[name][packet] = number in reached
    return results


def _scan_from(cloud: EmbeddedCloud, source: str, tried: list[tuple[str, Packet]]) -> set[int]:
    place, python = {"laptop": (["run"], "python3"), "stranger": (["outside"], "python3")}.get(
        source, (["exec", source.split()[-1]], "/opt/deepcdk/bin/python3")
    )
    words = demo.localcloud(place[0], "--name", cloud.name, *place[1:], "--", python, "-c", SCAN, str(SILENCE_S))
    done = subprocess.run(
        words,
        input=json.dumps([(packet.protocol, packet.address, packet.port) for _, packet in tried]),
        capture_output=True,
        text=True,
        cwd=demo.ROOT,
        env=demo.environment(),
        timeout=PATIENCE_S,
        check=True,
    )
    return set(json.loads(done.stdout))

"""Attacks by a rank, by root on a worker, and by an instance in the workers' subnet: every attempt is blocked.

Attempts are numbered across all groups. `tests/e2e/test_hostile_master.py` tests attacks of a compromised master on the
laptop. `tests/e2e/rights/` tests attacks of the rank of a real run on its node and on others.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Final

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.e2e.hostile import tries
from tests.e2e.hostile.nodes import FIND_AWS, VICTIM, Cluster
from tests.e2e.hostile.tries import Try
from tests.waiting import eventually

OTHER: Final = "deeplearning-worker1"
MASTER: Final = "deeplearning-master"
OUTSIDER: Final = "stranger"
REGISTRY_LOG: Final = "/var/log/deepcdk-registry.log"
RANK_PREFIX: Final = "setpriv --reuid 60900 --regid 60900 --clear-groups --no-new-privs"
GROUPS: Final = {
    "rank": tries.RANK,
    "root": (*tries.ROOT, *tries.AS_MASTER),
    "role": tries.ROLE,
    "registry": tries.REGISTRY,
    "stranger": tries.STRANGER,
}
NUMBER: Final = {
    each: number for number, each in enumerate((each for group in GROUPS.values() for each in group), start=1)
}


def numbered(group: str) -> pytest.MarkDecorator:
    """Return the parameters of a group's test: one attempt each, with its number."""
    each = [pytest.param(one, id=f"{NUMBER[one]:02}-{group}-{one.name}") for one in GROUPS[group]]
    return pytest.mark.parametrize("tried", each)


# Many attempts at the same time start slowly: with the default of one attempt of 1 s, a call may find no credentials.
PATIENT: Final = "export AWS_METADATA_SERVICE_TIMEOUT=20 AWS_METADATA_SERVICE_NUM_ATTEMPTS=5; "


def attempt(
    nodes: Cluster, node: str, group: Sequence[Try], setting: Mapping[str, str], prefix: str = ""
) -> dict[Try, str]:
    """Make all attempts on a node concurrently, as root or with a command that drops root; return the answers."""
    answers = "/tmp/red-team"
    variables = "".join(f"export {name}={shlex.quote(value)}; " for name, value in setting.items())
    lines = [f"rm -rf {answers}; mkdir -m 777 {answers}"]
    for number, each in enumerate(group):
        start = f"{FIND_AWS}{PATIENT}{variables}AWS_PAGER=; exec >{answers}/{number} 2>&1; "
        one = f"{start}{each.script} && echo SUCCEEDED; true"
        lines.append(f"{prefix} sh -c {shlex.quote(one)} &")
    lines.append("wait")
    lines += [f"echo '=== {number}'; cat {answers}/{number}" for number in range(len(group))]
    said = nodes.shell(node, "\n".join([*lines, f"rm -r {answers}"]))
    parts = re.split(r"^=== [0-9]+\n", said, flags=re.MULTILINE)[1:]
    return dict(zip(group, (part.strip() for part in parts), strict=True))


def logged(tried: Try, setting: Mapping[str, str], log: str) -> bool:
    """Return whether a log contains an attempt, given that its kind is logged."""
    line = Template(tried.logged).substitute({name: re.escape(value) for name, value in setting.items()})
    return re.search(line, log) is not None


@pytest.fixture(scope="module")
def nodes(cluster: EmbeddedCloud) -> Cluster:
    return Cluster(cluster)


@pytest.fixture(scope="module")
def setting(nodes: Cluster) -> dict[str, str]:
    """Return what an attacker may know about the cluster (more than a rank does)."""
    outputs = nodes.cloud.outputs()
    address = {line.split()[0]: line.split()[1] for line in nodes.listed()}
    (file_system,) = nodes.cloud.ask("efs", "describe_file_systems")["FileSystems"]
    targets = nodes.cloud.ask("efs", "describe_mount_targets", FileSystemId=file_system["FileSystemId"])
    return {
        "MASTER": address[MASTER],
        "OTHER": address[OTHER],
        "SELF": address[VICTIM],
        "FILES": targets["MountTargets"][0]["IpAddress"],
        "MASTER_ID": nodes.ids[MASTER],
        "OTHER_ID": nodes.ids[OTHER],
        "SELF_ID": nodes.ids[VICTIM],
        "USER_NAME": outputs["LoginUser"],
        "GROUP": outputs["WorkerGroupName"],
        "BUCKET": outputs["BucketName"],
        "KEY": nodes.shell(VICTIM, ". /opt/deepcdk/node.conf; echo $key_parameter").strip(),
        "WATCHER": nodes.shell(VICTIM, "pgrep -of 'registry watch'").strip(),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The answers to a group of attempts, and the log that records them."""

    answers: Mapping[Try, str]
    log: str = ""

    def check(self, tried: Try, setting: Mapping[str, str]) -> None:
        """Check that an attempt was blocked, and logged if its kind is logged."""
        assert "SUCCEEDED" not in self.answers[tried]
        assert re.search(tried.refusal, self.answers[tried], flags=re.MULTILINE)
        assert logged(tried, setting, self.log)


@pytest.fixture(scope="module")
def of_rank(nodes: Cluster, setting: dict[str, str]) -> Outcome:
    answers = attempt(nodes, VICTIM, tries.RANK, setting, RANK_PREFIX)
    return Outcome(answers=answers, log=nodes.shell(OTHER, "cat /var/log/sshd.log"))


@pytest.fixture(scope="module")
def of_root(nodes: Cluster, setting: dict[str, str]) -> Outcome:
    answers = attempt(nodes, VICTIM, tries.ROOT, setting) | attempt(nodes, VICTIM, tries.AS_MASTER, setting)
    return Outcome(answers=answers, log=nodes.shell(OTHER, "cat /var/log/sshd.log"))


@pytest.fixture(scope="module")
def of_role(nodes: Cluster, setting: dict[str, str]) -> Outcome:
    answers = attempt(nodes, VICTIM, tries.ROLE, setting)  # ranks cannot use the role here
    return Outcome(answers=answers, log=nodes.cloud.log())


@numbered("rank")
def test_attacks_of_a_rank_on_its_node_fail(setting: dict[str, str], of_rank: Outcome, tried: Try) -> None:
    of_rank.check(tried, setting)


@numbered("root")
def test_attacks_of_root_on_a_worker_on_other_nodes_fail(setting: dict[str, str], of_root: Outcome, tried: Try) -> None:
    of_root.check(tried, setting)


@numbered("role")
def test_forbidden_calls_of_a_worker_are_denied_and_logged(
    setting: dict[str, str], of_role: Outcome, tried: Try
) -> None:
    of_role.check(tried, setting)


@pytest.fixture(scope="module")
def registry_logs(nodes: Cluster, setting: dict[str, str]) -> Iterator[dict[str, str]]:
    """Write all attempts to the registry, check the other nodes, and return their logs."""

    def logs() -> dict[str, str]:
        return {name: nodes.shell(name, f"cat {REGISTRY_LOG}") for name in (MASTER, OTHER)}

    def all_logged() -> dict[str, str]:
        found = logs()
        missing = [each for each in tries.REGISTRY if not logged(each, setting, found[teller(each)])]
        return {} if missing else found

    with nodes.restored():
        before = {name: nodes.listed(name) for name in (MASTER, OTHER)}
        answers = attempt(nodes, VICTIM, tries.REGISTRY, setting)
        assert set(answers.values()) == {"SUCCEEDED"}  # root on a worker can write; the effect on other nodes matters
        try:
            found = eventually(all_logged, what=logs)
            eventually(lambda: nodes.shell(VICTIM, "[ -L /mnt/efs/.cluster/list ] || echo a file again"))
            for name, lines in before.items():
                assert [line for line in nodes.listed(name) if not line.startswith("# ")] == lines
                files = "/etc/hosts /etc/ssh/ssh_known_hosts /home/*/.ssh/authorized_keys"
                written = nodes.shell(name, f"cat {files} 2>/dev/null || true")
                assert not re.search(r"REDTEAM|10\.0\.64\.99|root:", written)
            yield found
        finally:
            nodes.shell(VICTIM, "cd /mnt/efs/.cluster/nodes; rm -f *-worker3[1-8] *-worker-red-team")


def teller(tried: Try) -> str:
    """Return the node that logs an attempt: the master, or a worker if the attempt replaces the master's key."""
    return OTHER if tried is tries.REGISTRY[-1] else MASTER


@numbered("registry")
def test_registry_entries_of_root_on_a_worker_affect_no_other_node(
    setting: dict[str, str], registry_logs: dict[str, str], tried: Try
) -> None:
    assert logged(tried, setting, registry_logs[teller(tried)])


@pytest.fixture(scope="module")
def of_stranger(nodes: Cluster, setting: dict[str, str]) -> Iterator[Outcome]:
    """Start an instance in the workers' subnet, outside the cluster's security groups, and attack from there."""
    (files,) = (each for each in tries.STRANGER if "files" in each.name)
    from_worker = attempt(nodes, OTHER, [files], setting)
    assert "status 124" not in from_worker[files]  # a worker, which is allowed, gets an answer
    described = nodes.cloud.ask("ec2", "describe_instances", InstanceIds=[nodes.ids[OTHER]])
    worker = described["Reservations"][0]["Instances"][0]
    place = {name: worker[name] for name in ("ImageId", "SubnetId")}
    started = nodes.cloud.ask("ec2", "run_instances", InstanceType="c5.large", MinCount=1, MaxCount=1, **place)
    (instance,) = started["Instances"]
    nodes.ids[OUTSIDER] = id = str(instance["InstanceId"])
    try:
        eventually(lambda: nodes.cloud.localcloud("exec", id, "--", "true", check=False).returncode == 0)
        yield Outcome(answers=attempt(nodes, OUTSIDER, tries.STRANGER, setting))
    finally:
        nodes.cloud.ask("ec2", "terminate_instances", InstanceIds=[id])
        del nodes.ids[OUTSIDER]


@numbered("stranger")
def test_attacks_of_a_stranger_in_the_subnet_fail(setting: dict[str, str], of_stranger: Outcome, tried: Try) -> None:
    of_stranger.check(tried, setting)

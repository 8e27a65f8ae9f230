"""A booting node starts its CloudWatch agent: the script runs for real under its own root directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.user_data import USER_DATA_LIMIT, user_data
from tests.stacks.boot.nodelab import Lab, Node

CTL = "opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl"
STARTED = "-a fetch-config -m ec2 -s -c ssm:CFN-deepcdk-WorkerAgent\n"


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def node_with_agent(lab: Lab, *, installed: bool = True, status: int = 0) -> Node:
    node = lab.node("worker", 1, agent="CFN-deepcdk-WorkerAgent")
    (node.root / "var/tmp").mkdir(parents=True)
    if installed:
        script(node.root / CTL, f'echo "$*" >>"$DEEPCDK_ROOT/agent"; exit {status}')
    return node


def test_agent_is_started_with_configuration_in_parameter(lab: Lab) -> None:
    node = node_with_agent(lab)
    status, said = node.boot()
    assert status == 0, said
    assert node.text("agent") == STARTED


def test_agent_is_started_before_any_step_that_can_fail(lab: Lab) -> None:
    node = lab.node("worker", 1, mounts=False, agent="CFN-deepcdk-WorkerAgent")
    script(node.root / CTL, 'echo "$*" >>"$DEEPCDK_ROOT/agent"')
    assert node.boot()[0] != 0
    assert node.text("agent") == STARTED


def test_node_is_ready_if_agent_fails_to_start(lab: Lab) -> None:
    node = node_with_agent(lab, status=1)
    status, said = node.boot()
    assert status == 0, said
    assert "the CloudWatch agent did not start" in said
    assert "--success true --reason ready" in node.text("signals")


def test_missing_agent_is_installed_from_amazon_linux(lab: Lab) -> None:
    node = node_with_agent(lab, installed=False)
    install = f'mkdir -p "${{LAB_CTL%/*}}"; printf "#!/bin/sh\\necho \\"\\$*\\" >>{node.root}/agent\\n" >"$LAB_CTL"'
    script(lab.commands / "dnf", f'echo "$*" >>"$DEEPCDK_ROOT/dnf"; {install}; chmod 755 "$LAB_CTL"')
    status, said = node.boot(LAB_CTL=str(node.root / CTL))
    assert status == 0, said
    assert "install -y -q amazon-cloudwatch-agent\n" in node.text("dnf")
    assert node.text("agent") == STARTED


def test_missing_agent_is_downloaded_from_regional_bucket_on_debian_and_ubuntu(lab: Lab) -> None:
    if any((directory / "dnf").exists() for directory in map(Path, ("/usr/bin", "/bin", "/usr/sbin"))):
        pytest.skip("this machine has dnf")
    node = node_with_agent(lab, installed=False)
    (node.root / "etc/os-release").write_text('NAME="Ubuntu"\nID=ubuntu\n')
    metadata = (lab.commands / "curl").read_text().removeprefix("#!/bin/sh\n")
    fetch = 'while [ "$1" != -o ]; do shift; done; echo deb >"$2"; echo "$*" >>"$DEEPCDK_ROOT/fetched"; exit 0'
    script(lab.commands / "curl", f'case "$*" in *.deb) {fetch};; esac\n{metadata}')
    script(
        lab.commands / "dpkg",
        f'[ "$1" = --print-architecture ] && echo arm64 && exit\ncat "$2" >"{node.root}/unpacked"\n'
        f'mkdir -p "{(node.root / CTL).parent}"; ln -s /bin/true "{node.root / CTL}"',
    )
    status, said = node.boot()
    assert status == 0, said
    assert "did not start" not in said
    assert node.text("fetched").split()[-1] == (
        "https://amazoncloudwatch-agent-us-east-1.s3.us-east-1.amazonaws.com/ubuntu/arm64/latest/amazon-cloudwatch-agent.deb"
    )
    # It is not in /tmp, which may be in memory, and it is removed afterwards.
    assert node.text("fetched").split()[1] == str(node.root / "var/tmp/amazon-cloudwatch-agent.deb")
    assert node.text("unpacked") == "deb\n"
    assert list((node.root / "var/tmp").iterdir()) == []


def test_node_without_agent_gets_no_script_for_it(lab: Lab) -> None:
    node = lab.node("worker", 1)
    status, said = node.boot()
    assert status == 0, said
    assert not (node.root / "opt/deepcdk/bin/agent").exists()


def test_user_data_stays_under_the_limit_with_an_agent(lab: Lab) -> None:
    settings = lab.node("master", 1, agent="CFN-" + "n" * 200).settings
    assert len(user_data(settings).encode()) < USER_DATA_LIMIT - 1024

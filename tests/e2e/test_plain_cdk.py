"""CDK commands next to the fab tasks, with cdk.json as in a fresh clone, which allows SSH from no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import EmbeddedCloud

WARNING = "no network and no task can reach the master's SSH port"


@pytest.mark.parametrize(
    ("command", "said"),
    [("synth", WARNING), ("diff", "SSH from ssh_cidr")],
    ids=["synth", "diff"],
)
def test_command_of_the_cdk_needs_no_ssh_cidr(cluster: EmbeddedCloud, tmp_path: Path, command: str, said: str) -> None:
    # Run the CDK's own rules, which take four seconds, only once: at `synth`.
    unchecked = () if command == "synth" else ("env", "CDK_VALIDATION=false")
    done = cluster.laptop(*unchecked, "cdk", command, "--output", str(tmp_path))
    assert said in done.stdout + done.stderr


def test_deployment_without_access_to_master_is_rejected_unchanged(cluster: EmbeddedCloud) -> None:
    def updated() -> object:
        (stack,) = cluster.ask("cloudformation", "describe_stacks", StackName="deepcdk")["Stacks"]
        return stack.get("LastUpdatedTime"), stack["StackStatus"]

    before = updated()
    done = cluster.laptop("fab", "up", "--yes", check=False)
    assert done.returncode == 1
    assert "ssh_cidr: missing" in done.stderr
    assert "--set ssh_access=session-manager" in done.stderr
    assert updated() == before

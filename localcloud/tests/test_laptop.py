"""The environment of commands on the laptop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from localcloud.cloud_paths import Layout
from localcloud.laptop import ACCESS_KEY_ID, PROGRAMS, environment


def variables(**caller: str) -> dict[str, str]:
    return environment(caller, layout=Layout(name="lc0"), endpoint="http://198.18.0.1")


def test_callers_credentials_and_proxies_are_removed() -> None:
    found = variables(
        AWS_PROFILE="real", AWS_SESSION_TOKEN="real", https_proxy="http://p", HTTPS_PROXY="http://p", CDK_HOME="/x"
    )
    assert "real" not in found.values()
    assert "http://p" not in found.values()
    assert found["AWS_ACCESS_KEY_ID"] == ACCESS_KEY_ID


def test_environment_points_to_cloud() -> None:
    found = variables(PATH="/bin", HOME="/home/me")
    assert found["AWS_ENDPOINT_URL"] == "http://198.18.0.1"
    assert found["AWS_REGION"] == found["AWS_DEFAULT_REGION"] == "us-east-1"
    assert found["HOME"] == "/var/lib/localcloud/lc0/laptop"
    assert found["CDK_HOME"].startswith(found["HOME"])
    assert found["PATH"] == f"{PROGRAMS}:/bin"


def test_laptop_has_a_session_manager_plugin_that_the_aws_cli_accepts() -> None:
    done = subprocess.run(
        ["session-manager-plugin", "--version"], env=variables(PATH="/bin"), capture_output=True, text=True, check=True
    )
    assert tuple(map(int, done.stdout.split("."))) >= (1, 2, 764, 0)


def test_jsii_cache_is_the_callers() -> None:
    assert variables(HOME="/home/me")["JSII_RUNTIME_PACKAGE_CACHE_ROOT"].startswith("/home/me/")
    assert variables(JSII_RUNTIME_PACKAGE_CACHE_ROOT="/c")["JSII_RUNTIME_PACKAGE_CACHE_ROOT"] == "/c"


@pytest.mark.root
@pytest.mark.parametrize("servers", [{"index.example": "198.18.9.9"}, {}])
def test_laptop_finds_the_servers_of_the_package_index_and_the_machine_does_not(servers: dict[str, str]) -> None:
    before = Path("/etc/hosts").read_text()
    program = (
        "import os, sys; from localcloud.laptop import replace_process; "
        f"state = {{'namespaces': {{'laptop': {{'path': '/proc/self/ns/net'}}}}, 'packages': {servers!r}}}; "
        "replace_process(state, 'laptop', ['cat', '/etc/hosts'], os.environ)"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert seen == "".join(f"{address} {name}\n" for name, address in servers.items()) + before
    assert Path("/etc/hosts").read_text() == before

"""What a command finds on the laptop."""

from __future__ import annotations

from localcloud.laptop import ACCESS_KEY_ID, environment
from localcloud.layout import Layout


def variables(**caller: str) -> dict[str, str]:
    return environment(caller, layout=Layout(name="lc0"), endpoint="http://198.18.0.1", region="us-east-1")


def test_callers_credentials_and_proxies_do_not_come_along() -> None:
    found = variables(
        AWS_PROFILE="real", AWS_SESSION_TOKEN="real", https_proxy="http://p", HTTPS_PROXY="http://p", CDK_HOME="/x"
    )
    assert "real" not in found.values()
    assert "http://p" not in found.values()
    assert found["AWS_ACCESS_KEY_ID"] == ACCESS_KEY_ID


def test_cloud_takes_the_place_of_aws() -> None:
    found = variables(PATH="/bin", HOME="/home/me")
    assert found["AWS_ENDPOINT_URL"] == "http://198.18.0.1"
    assert found["AWS_REGION"] == found["AWS_DEFAULT_REGION"] == "us-east-1"
    assert found["HOME"] == "/var/lib/localcloud/lc0/laptop"
    assert found["CDK_HOME"].startswith(found["HOME"])
    assert found["PATH"] == "/bin"


def test_the_unpacked_cdk_is_the_callers() -> None:
    assert variables(HOME="/home/me")["JSII_RUNTIME_PACKAGE_CACHE_ROOT"].startswith("/home/me/")
    assert variables(JSII_RUNTIME_PACKAGE_CACHE_ROOT="/c")["JSII_RUNTIME_PACKAGE_CACHE_ROOT"] == "/c"

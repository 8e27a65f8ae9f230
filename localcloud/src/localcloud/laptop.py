"""The laptop: a machine on the cloud's internet, and the environment of commands on it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from localcloud.cleanup import MARKER
from localcloud.cloud_paths import Layout
from localcloud.network.namespaces import leave_mount_namespace, set_namespace, show_file
from localcloud.snapshot import REGION

ACCESS_KEY_ID: Final = "LOCALCLOUD0000000000"
"""It differs from any real key, because the CDK caches accounts by access key."""
PROGRAMS: Final = Path(__file__).resolve().parent / "programs"
"""Programs of the laptop, which come before the caller's in PATH."""
SECRET_ACCESS_KEY: Final = "embedded-cloud-without-secrets"  # noqa: S105  # only signs calls to loopback
HOSTS: Final = Path("/etc/hosts")
_DROPPED_PREFIXES: Final = ("AWS_", "CDK_")
_DROPPED_SUFFIXES: Final = ("_proxy", "_PROXY")


def environment(caller: Mapping[str, str], *, layout: Layout, endpoint: str) -> dict[str, str]:
    """Return the variables of a command on the laptop: the caller's, with the cloud instead of AWS, without proxies.

    The caller's variables for AWS and the CDK are removed. HOME is the laptop's home directory. `endpoint` is the URL
    of the cloud's API.
    """
    kept = {
        key: value
        for key, value in caller.items()
        if not key.startswith(_DROPPED_PREFIXES) and not key.endswith(_DROPPED_SUFFIXES)
    }
    home = Path(caller.get("HOME", "/root"))
    # The jsii library unpacks the CDK once for each home directory, which takes seconds.
    kept.setdefault("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(home / ".cache/aws/jsii/package-cache"))
    return kept | {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",  # the laptop is not an instance, so do not wait for instance metadata
        "CDK_HOME": str(layout.laptop / ".cdk"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "HOME": str(layout.laptop),
        "PATH": os.pathsep.join([str(PROGRAMS), caller.get("PATH", os.defpath)]),
        "LOCALCLOUD_PACKAGE": str(PROGRAMS.parent.parent),
        "LOCALCLOUD_PYTHON": sys.executable,
        MARKER: layout.name,
    }


def _add_host_names(addresses: Mapping[str, str]) -> None:
    """Make names of servers resolve to these addresses for this process and its children, through /etc/hosts."""
    leave_mount_namespace()
    known = HOSTS.read_text(encoding="utf-8") if HOSTS.exists() else ""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write("".join(f"{address} {name}\n" for name, address in addresses.items()) + known)
        file.flush()
        Path(file.name).chmod(0o644)
        show_file(Path(file.name), HOSTS)


def replace_process(state: Mapping[str, Any], place: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Replace this process with `command` at a place, `laptop` or `outside`, with only these environment variables.

    `state` is the result of `lifecycle.read_state`. Needs root. Raises FileNotFoundError or another OSError if the
    command cannot be executed; otherwise it does not return.
    """
    fd = os.open(state["namespaces"][place]["path"], os.O_RDONLY | os.O_CLOEXEC)
    set_namespace(fd)
    if state["packages"]:
        _add_host_names(state["packages"])
    os.execvpe(command[0], list(command), dict(variables))

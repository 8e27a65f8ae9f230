"""The command line of amazon-cloudwatch-agent-ctl, as far as nodes use it at boot, and the agent itself.

`-a fetch-config -m ec2 -s -c ssm:PARAMETER` reads and checks the configuration, and starts the agent in the background.
It replaces a running agent.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from .api import Api, ApiError, Credentials
from .logs import Source, Tail
from .metrics import MEASURED, NOTHING_HERE, Sample, data, figures, take

HOME: Final = Path("/opt/aws/amazon-cloudwatch-agent")
CONFIG: Final = HOME / "etc/amazon-cloudwatch-agent.json"
PID: Final = HOME / "var/amazon-cloudwatch-agent.pid"
LOG: Final = HOME / "logs/amazon-cloudwatch-agent.log"
_METADATA: Final = "http://169.254.169.254/latest"
_RENEWAL_S: Final = 300.0
"""Credentials are renewed this long before they expire."""
_PAUSE_S: Final = 1.0
"""Pause between two checks of the log files."""


class ConfigurationError(ValueError):
    """A configuration with parts that the stand-in does not support."""


def main(arguments: list[str]) -> int:
    """Fetch, check and store the configuration, with -s also start the agent; return the exit code.

    With the only argument `run`, this process is the agent, with the stored configuration.
    """
    if arguments == ["run"]:
        return _run(json.loads(CONFIG.read_text(encoding="utf-8")))
    parser = argparse.ArgumentParser(prog="amazon-cloudwatch-agent-ctl")
    parser.add_argument("-a", dest="action", required=True, choices=["fetch-config"])
    parser.add_argument("-m", dest="mode", required=True, choices=["ec2"])
    parser.add_argument("-c", dest="config", required=True)
    parser.add_argument("-s", dest="start", action="store_true")
    given = parser.parse_args(arguments)
    kind, _, name = given.config.partition(":")
    if kind != "ssm" or not name:
        parser.error(f"-c {given.config}: the embedded cloud's agent supports only ssm:PARAMETER")
    try:
        document = json.loads(_api().parameter(name))
        check(document)
    except (ApiError, OSError, ValueError) as error:
        print(
            f"amazon-cloudwatch-agent-ctl: cannot use the SSM parameter {name} as configuration: {error}",
            file=sys.stderr,
        )
        return 1
    for path in (CONFIG, PID, LOG):
        path.parent.mkdir(parents=True, exist_ok=True)
    CONFIG.write_text(json.dumps(document), encoding="utf-8")
    if given.start:
        _restart()
    return 0


def check(document: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if a configuration has unsupported sections.

    Sections that have no data on these hosts are accepted.
    """
    unknown = set(document) - {"agent", "metrics", "logs"}
    collected = document.get("metrics", {}).get("metrics_collected", {})
    unknown |= {f"metrics_collected.{name}" for name in set(collected) - MEASURED - NOTHING_HERE}
    unknown |= {f"logs_collected.{name}" for name in document.get("logs", {}).get("logs_collected", {})} - {
        "logs_collected.files"
    }
    if unknown:
        raise ConfigurationError(f"the embedded cloud's agent does not support {', '.join(sorted(unknown))}")


def _restart() -> None:
    """Start the agent in the background, in place of a running one, and store its process id."""
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(PID.read_text(encoding="utf-8")), signal.SIGTERM)
    with LOG.open("ab") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", __package__ or "cloudwatch_agent", "run"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    PID.write_text(f"{agent.pid}\n", encoding="utf-8")


def _run(document: Mapping[str, Any]) -> int:
    """Send new log lines every second, and metrics at the configured interval, until SIGTERM or SIGINT. Return 0.

    `document` is the configuration. Failed calls are logged.
    """
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    api, instance_id = _api(), _fact("instance-id")
    files = document.get("logs", {}).get("logs_collected", {}).get("files", {}).get("collect_list", [])
    tail = Tail([Source.parse(entry, {"instance_id": instance_id}) for entry in files], api)
    interval_s = float(document["agent"].get("metrics_collection_interval", 60))
    metrics = document.get("metrics")
    before = _sample()
    while not stopped.is_set():
        _attempt(tail.ship)
        now = _sample() if metrics and time.monotonic() - before.at_s >= interval_s else None
        if metrics and now:
            values = figures(before, now, cpus=os.cpu_count() or 1, memory_bytes=_machine_memory_bytes())
            sent = list(data(metrics, values, instance_id))
            _attempt(functools.partial(api.put_metrics, metrics["namespace"], sent))
            before = now
        stopped.wait(_PAUSE_S)
    _attempt(tail.ship)
    return 0


def _attempt(work: Callable[[], None]) -> None:
    """Call `work`. An API or system error is only logged, because the agent tries again later."""
    try:
        work()
    except (ApiError, OSError) as error:
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), f"{error}; trying again", flush=True)


def _sample() -> Sample:
    return take(Path("/proc"), Path("/"), time.monotonic())


def _machine_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _api() -> Api:
    return Api(endpoint=_setting("AWS_ENDPOINT_URL"), region=_fact("placement/region"), credentials=RoleCredentials())


class RoleCredentials:
    """The credentials of the instance's role, renewed before they expire."""

    def __init__(self) -> None:
        self._known: Credentials | None = None
        self._until = 0.0

    def __call__(self) -> Credentials:
        """Return credentials that are valid for some minutes. Raises OSError if the instance has none."""
        if self._known is None or time.time() >= self._until:
            role = _fact("iam/security-credentials/")
            given = json.loads(_fact(f"iam/security-credentials/{role}"))
            self._known = Credentials(access_key=given["AccessKeyId"], token=given["Token"])
            ends = time.strptime(given["Expiration"], "%Y-%m-%dT%H:%M:%SZ")
            self._until = calendar.timegm(ends) - _RENEWAL_S
        return self._known


def _setting(name: str) -> str:
    """Return an environment variable, or its value in /etc/environment if it is not set, as for services.

    Raises ConfigurationError if neither is set.
    """
    if name in os.environ:
        return os.environ[name]
    for line in Path("/etc/environment").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key == name:
            return value
    raise ConfigurationError(f"{name} is set neither in the environment nor in /etc/environment")


def _fact(path: str) -> str:
    """Return the instance metadata at a path such as `placement/region`. Raises OSError."""
    ask = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = urllib.request.Request(f"{_METADATA}/api/token", method="PUT", headers=ask)
    with urllib.request.urlopen(token, timeout=5) as answer:
        headers = {"X-aws-ec2-metadata-token": answer.read().decode()}
    request = urllib.request.Request(f"{_METADATA}/meta-data/{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

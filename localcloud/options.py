"""The options of `start`, read from a command line and written to one."""

from __future__ import annotations

import argparse
import dataclasses
import re

from localcloud.errors import LocalCloudError
from localcloud.hosts.binds import Bind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `start`."""

    name: str
    binds: tuple[Bind, ...] = ()
    efs_size: str = ""
    """Size of a memory file system for all shared file systems, such as 64m; empty: on disk, bounded by the disk."""
    metrics_speed: float = 1.0
    """How many minutes of the metrics and alarms pass in one."""

    def to_argv(self) -> list[str]:
        """Return the daemon's command line."""
        binds = [part for bind in self.binds for part in ("--mount", f"{bind.source}:{bind.target}")]
        speed = ["--metrics-speed", f"{self.metrics_speed:g}"]
        return ["--name", self.name, "--efs-size", self.efs_size, *speed, *binds]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the options of `start`."""
    command.add_argument("--mount", action="append", default=[], metavar="SRC:DST", help="show SRC as DST in all hosts")
    command.add_argument("--efs-size", default="", metavar="SIZE", help="bound the shared file systems (e.g. 64m)")
    command.add_argument(
        "--metrics-speed", default="1", metavar="N", help="let N minutes of metrics and alarms pass in one (default: 1)"
    )


def from_arguments(arguments: argparse.Namespace) -> Options:
    """Return the options of a parsed command line. Raises LocalCloudError for a value out of bounds."""
    if arguments.efs_size and not re.fullmatch(r"[1-9][0-9]{0,6}[kmg]", arguments.efs_size):
        raise LocalCloudError(f"--efs-size {arguments.efs_size!r}: must be 1 to 9999999 and k, m or g, such as 64m")
    if not re.fullmatch(r"[1-9][0-9]{0,2}", arguments.metrics_speed):
        raise LocalCloudError(f"--metrics-speed {arguments.metrics_speed!r}: must be a whole number from 1 to 999")
    return Options(
        name=arguments.name,
        binds=tuple(map(Bind.parse, arguments.mount)),
        efs_size=arguments.efs_size,
        metrics_speed=float(arguments.metrics_speed),
    )

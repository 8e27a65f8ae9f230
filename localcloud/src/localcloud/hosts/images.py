"""Images, which hosts have below their own layer, and directories of this machine that hosts see read-only."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from localcloud.errors import LocalCloudError

AWS_CLI: Final = "/opt/aws/cli"
"""Directory of the AWS CLI's Python packages in the hosts."""

# Hosts mount their own file systems there.
_RESERVED: Final = ("/proc", "/sys", "/dev", "/run")


class MountError(LocalCloudError):
    """An invalid `SRC:DST` of `--mount`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bind:
    """A directory of the machine that every host sees, read-only."""

    source: Path
    target: str
    """Absolute path in the host."""

    def __str__(self) -> str:
        """Return the bind in the format of `parse`."""
        return f"{self.source}:{self.target}"

    @classmethod
    def parse(cls, text: str) -> Bind:
        """Parse `SRC:DST`. Raises MountError if it is invalid or SRC is not a directory."""
        source, separator, target = text.partition(":")
        if not separator or not source or not target.startswith("/") or ".." in target.split("/"):
            raise MountError(f"--mount {text!r}: must be SRC:DST, with DST an absolute path on the hosts, without ..")
        if any(target == place or target.startswith(f"{place}/") for place in _RESERVED) or not target.strip("/"):
            raise MountError(f"--mount {text!r}: DST must not be / or in {', '.join(_RESERVED)}, which the hosts use")
        path = Path(source).expanduser().resolve()
        if not path.is_dir():
            raise MountError(f"--mount {text!r}: {path} is not a directory of this machine")
        return cls(source=path, target=target.rstrip("/"))


def interpreter_binds(prefix: str = sys.base_prefix) -> tuple[Bind, ...]:
    """Return a bind of this Python's directory at the same path; () if it is in /usr, which hosts share."""
    root = Path(prefix).resolve()
    return () if root.is_relative_to("/usr") else (Bind(source=root, target=str(root)),)


def aws_cli_binds() -> tuple[Bind, ...]:
    """Return a bind of this Python's AWS CLI, because Amazon's images have the AWS CLI; () if it is missing."""
    found = importlib.util.find_spec("awscli")
    if found is None or found.origin is None:
        return ()
    return (Bind(source=Path(found.origin).resolve().parent.parent, target=AWS_CLI),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image:
    """Properties of all hosts with one image."""

    lower: tuple[Path, ...]
    """The overlay's directories below a host's own layer, uppermost first."""
    boot: str
    """The script in `guest/` that runs when file systems and network are ready."""
    environment: Mapping[str, str]
    """Variables of every process."""
    binds: tuple[Bind, ...] = ()
    """Directories of the machine that a host sees read-only."""
    accounts: bool = True
    """Whether the image has login users, who get the instance's key. Otherwise cloud-init creates one."""

"""Errors of the embedded cloud. Each message states what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence


def error_text(error: Exception) -> str:
    """Return an error's message: for a system error, its file and reason, without Python's error number.

    An error without a message gives the name of its class.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


class LocalCloudError(Exception):
    """A failure of the embedded cloud. Only the command line converts it to an exit message."""


class MissingRequirementsError(LocalCloudError, OSError):
    """This machine lacks requirements. Carries all of them in `missing`, one line each with its fix."""

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        lines = "\n".join(f"  - {line}" for line in missing)
        super().__init__(f"the embedded cloud cannot start on this machine:\n{lines}")


class NotRunningError(LocalCloudError, LookupError):
    """No cloud with this name is running."""

    def __init__(self, name: str) -> None:
        self.name = name
        start = f"python -m localcloud start --name {name}"
        super().__init__(f"no embedded cloud named {name} is running; start it with: {start}")


class UnknownInstanceError(LocalCloudError, LookupError):
    """No host has this instance id, host name or address. Carries it as `instance_id`, and the `known` ids."""

    def __init__(self, instance_id: str, known: Sequence[str]) -> None:
        self.instance_id, self.known = instance_id, tuple(known)
        super().__init__(f"there is no host {instance_id!r}; the hosts are: {', '.join(known) or 'none'}")


class CommandError(LocalCloudError, ChildProcessError):
    """A system command failed. Carries `command`, `exit_code` and `output`."""

    def __init__(self, command: Sequence[str], exit_code: int, output: str) -> None:
        self.command, self.exit_code, self.output = tuple(command), exit_code, output
        last = "\n".join(output.strip().splitlines()[-5:])
        super().__init__(f"`{' '.join(command)}` failed with exit status {exit_code}: {last or 'no output'}")

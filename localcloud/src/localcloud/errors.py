"""Errors of the embedded cloud: what was wrong, where, and what to do now."""

from __future__ import annotations

from collections.abc import Sequence


class LocalCloudError(Exception):
    """Report a failure of the embedded cloud; only the command line turns it into an exit message."""


class MissingRequirementsError(LocalCloudError, OSError):
    """Report everything this machine lacks, at once. Carries `missing`, one line each."""

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        lines = "\n".join(f"  - {line}" for line in missing)
        super().__init__(f"the embedded cloud cannot start on this machine:\n{lines}")


class NotRunningError(LocalCloudError, LookupError):
    """Report that no cloud of this name runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        start = f"python -m localcloud start --name {name}"
        super().__init__(f"no embedded cloud named {name} is running; start it with: {start}")


class UnknownInstanceError(LocalCloudError, LookupError):
    """Report an instance id that no host has. Carries `instance_id` and the ids that are `known`."""

    def __init__(self, instance_id: str, known: Sequence[str]) -> None:
        self.instance_id, self.known = instance_id, tuple(known)
        super().__init__(f"no host for {instance_id!r}; there are: {', '.join(known) or 'none'}")


class CommandError(LocalCloudError, ChildProcessError):
    """Report a system command that failed. Carries `command`, `exit_code` and `output`."""

    def __init__(self, command: Sequence[str], exit_code: int, output: str) -> None:
        self.command, self.exit_code, self.output = tuple(command), exit_code, output
        last = "\n".join(output.strip().splitlines()[-5:])
        super().__init__(f"`{' '.join(command)}` ended with {exit_code}: {last or 'no output'}")

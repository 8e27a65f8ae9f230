"""What each rank of a run becomes. Pure: the laptop shows it before the launch, and the rank executes it."""

from __future__ import annotations

from typing import Final

from agent.spec.run import RunSpec

_PYTHONS: Final = ("python", "python3")
REPORTING: Final = ("/bin/sh", "-c", 'trap : INT TERM; "$@"; exit $?', "rank")
"""A shell that stays as the rank's parent over Gloo. Of a command that a signal ended `ssh` reports only 255, as of a
connection that broke; a shell returns 128 and the signal's number. Its traps keep it alive while the rank ends itself.
It passes no signal on: who asks a rank to end asks its child.
"""


def rank_command(spec: RunSpec, python: str) -> list[str]:
    """Return the rank's own command: a script or a module by `python`, anything else as it is."""
    first, *rest = spec.command
    if first in _PYTHONS:
        return [python, *rest]
    return [python, first, *rest] if first.startswith("-") or first.endswith(".py") else [first, *rest]

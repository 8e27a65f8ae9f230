"""Commands in a machine, past its network, by QEMU's agent: https://qemu-project.gitlab.io/qemu/interop/qemu-ga-ref.html.

A program in a machine has no input from here, and its output is there when it has ended.
"""

from __future__ import annotations

import base64
import dataclasses
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from localcloud.machines.json_socket import JsonSocket, NoAnswerError

_ANSWER_S: Final = 30.0
"""How long the agent may take to answer; emulated, a machine is slow."""
_PAUSE_S: Final = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """What a command that has ended said."""

    exit_code: int
    output: bytes
    errors: bytes


def execute(path: Path, command: Sequence[str], answer_s: float = _ANSWER_S) -> Done:
    """Run a command as root and return its result. Raises NoAnswerError, or RefusedError where it cannot be run."""
    with JsonSocket(path, answer_s) as agent:
        _synchronize(agent, path, answer_s)
        started = agent.request("guest-exec", path=command[0], arg=list(command[1:]), **{"capture-output": True})
        while True:
            status = agent.request("guest-exec-status", pid=started["pid"])
            if status["exited"]:
                return _done(status)
            time.sleep(_PAUSE_S)


def _synchronize(agent: JsonSocket, path: Path, answer_s: float) -> None:
    """Skip what the agent still answers to a client that has left."""
    token = secrets.randbelow(1 << 31)
    deadline = time.monotonic() + answer_s
    found = agent.request("guest-sync", id=token)
    while found != token:
        if time.monotonic() > deadline:
            raise NoAnswerError(path, "it answers others")
        found = agent.next_return()


def _done(status: dict[str, Any]) -> Done:
    # A program that a signal ended has no exit code; shells count it so.
    code = int(status["exitcode"]) if "exitcode" in status else 128 + int(status.get("signal", 0))
    output, errors = (base64.b64decode(status.get(key, "")) for key in ("out-data", "err-data"))
    return Done(exit_code=code, output=output, errors=errors)

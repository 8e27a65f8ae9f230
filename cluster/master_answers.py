"""Validate the master's answers before they are used, because a compromised master may send anything.

A rule takes a JSON value and returns an error text, or "" if the value is valid. cattrs is not used. Its import takes
0.11 s, and it converts values (`"3"` to 3, 1 to true) unless each type has a hook. The hooks would be the rules below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from agent.spec import nodes
from agent.spec.run_id import RUN_ID_RULE, is_run_id
from agent.spec.run_states import LAST_TIME, STATES
from agent.spec.untrusted_json import parse as parse
from cluster.errors import MAX_SHOWN, DeepcdkError

Rule = Callable[[Any], str]

REMEDY: Final = (
    "the answer was not used; repeat the command. If it fails again, do not trust the master: terminate its instance "
    "in EC2, and the Auto Scaling group starts a new master"
)


class AnswerError(DeepcdkError, ValueError):
    """Report an invalid answer of the master. The answer is shown without control characters.

    `where` names the master. A reader of a stream may leave it to the code that opened the stream.
    """

    def __init__(self, question: str, answer: object, rule: str, *, where: str = "") -> None:
        self.question, self.answer, self.rule = question, answer, rule
        text = ascii(answer)
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text):,} characters)"
        super().__init__(f"the master's answer to {question} is invalid: {rule}\n  answer: {shown}", where=where)
        self.remedy = REMEDY


def check(value: Any, rule: Rule, question: str, *, run_id: str = "", where: str = "") -> Any:
    """Return an answer if it follows the rule, and is about `run_id` if that is given. Raises AnswerError otherwise.

    `question` and `where` name the command and the master in the error.
    """
    if wrong := rule(value):
        raise AnswerError(question, value, wrong, where=where)
    if run_id and value["run_id"] != run_id:
        raise AnswerError(question, value["run_id"], f"it is about another run than {run_id}", where=where)
    return value


def read(text: str, rule: Rule, question: str, *, run_id: str = "", where: str = "") -> Any:
    """Parse an answer from JSON, and return it if `check` accepts it. The arguments are those of `check`.

    Raises AnswerError.
    """
    try:
        value = parse(text)
    except ValueError as error:
        raise AnswerError(question, text, f"it is not JSON: {error}", where=where) from None
    return check(value, rule, question, run_id=run_id, where=where)


def text(value: Any) -> str:
    """Return "" if the value is text, otherwise an error text."""
    return "" if isinstance(value, str) else "must be text"


def flag(value: Any) -> str:
    """Return "" if the value is true or false, otherwise an error text."""
    return "" if isinstance(value, bool) else "must be true or false"


def whole(value: Any) -> str:
    """Return "" if the value is a whole number, otherwise an error text."""
    return "" if isinstance(value, int) and not isinstance(value, bool) else "must be a whole number"


def number(value: Any) -> str:
    """Return "" if the value is a finite number, otherwise an error text."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return "" if good else "must be a number"


def moment(value: Any) -> str:
    """Return "" if the value is a time in seconds since 1970, otherwise an error text."""
    return number(value) or ("" if 0 <= value <= LAST_TIME else "must be seconds since 1970")


def run_id(value: Any) -> str:
    """Return "" if the value is the id of a run, otherwise an error text."""
    return "" if isinstance(value, str) and is_run_id(value) else f"must be a run's id, {RUN_ID_RULE}"


def name(value: Any) -> str:
    """Return "" if the value is the name of a node, otherwise an error text."""
    rule = nodes.RULES["name"]
    return "" if isinstance(value, str) and rule.fits(value) else f"must be {rule.words}"


def state(value: Any) -> str:
    """Return "" if the value is the state of a run, otherwise an error text."""
    return "" if value in STATES else f"must be one of {', '.join(STATES)}"


def maybe(rule: Rule) -> Rule:
    """Return a rule that accepts null, a missing field, and values that follow `rule`."""
    return lambda value: "" if value is None else rule(value)


def each(rule: Rule) -> Rule:
    """Return a rule that accepts a list if all its values follow `rule`."""

    def wrong(value: Any) -> str:
        if not isinstance(value, list):
            return "must be a list"
        return next((f"{number}: {found}" for number, each in enumerate(value) if (found := rule(each))), "")

    return wrong


def fields(**rules: Rule) -> Rule:
    """Return a rule that accepts an object if these fields follow their rules. Other fields are allowed.

    A missing field is checked like null, so only a rule from `maybe` accepts it.
    """

    def wrong(value: Any) -> str:
        if not isinstance(value, dict):
            return "must be an object"
        for name, rule in rules.items():
            if found := rule(value.get(name)):
                return f"{name} {found}" if name in value else f"{name} is missing"
        return ""

    return wrong


NODE: Final = fields(name=name, address=text, instance_id=text, slots=whole)
SPENT: Final = fields(seconds=number, usd=maybe(number), usd_per_hour=maybe(number), reached=maybe(text))
STARTED_BY: Final = fields(user=text, host=text, identity=maybe(text), laptop=maybe(text))
TRIAL: Final = fields(
    sweep=text, number=whole, parameters=each(each(text)), repeat=whole, seed=maybe(whole), first=maybe(text)
)
SUMMARY: Final = fields(
    run_id=run_id,
    state=state,
    reason=maybe(text),
    started=moment,
    updated=moment,
    hosts=each(text),
    last_lines=maybe(each(text)),
    position=maybe(whole),
    epoch=maybe(fields()),
    exit_code=maybe(whole),
    spent=maybe(SPENT),
    started_by=maybe(STARTED_BY),
    trial=maybe(TRIAL),
)
SPEC: Final = fields(
    run_id=run_id,
    hosts=each(NODE),
    command=each(text),
    launcher=maybe(each(text)),
    secrets=maybe(each(text)),
    agent=maybe(text),
    payload=text,
    program=maybe(text),
    git_commit=maybe(text),
    efs_mount=text,
    ranks_per_node=maybe(whole),
    controller=maybe(text),
    preflight=maybe(text),
    trial=maybe(TRIAL),
    bounds=maybe(fields(max_hours=maybe(number), max_usd=maybe(number))),
)
FINDING: Final = fields(node=text, what=text)
REPLACED: Final = fields(time=number, node=text, instance_id=text, reason=text, trouble=text)
_RECORD: Final = fields(
    run_id=run_id,
    directory=text,
    state=SUMMARY,
    spec=maybe(SPEC),
    origin=maybe(fields(diff_bytes=maybe(whole), prices_of=maybe(text))),
    spot=maybe(fields(hosts=whole, usd=maybe(number), prices_of=text)),
    launch=maybe(fields(command=each(text))),
    preflight=maybe(fields(allowed=maybe(each(FINDING)), warnings=maybe(each(FINDING)))),
    course=maybe(
        fields(
            archive=maybe(text),
            workers=maybe(text),
            notify=maybe(each(text)),
            trouble=maybe(text),
            runtime=maybe(fields(path=maybe(text), python=maybe(text), kind=maybe(text), versions=maybe(fields()))),
            replaced=maybe(each(REPLACED)),
            restarts=maybe(each(fields(**{"for": text, "hosts": each(text), "waited_s": number}))),
        )
    ),
    restart_costs=maybe(
        each(fields(went_on_at=maybe(whole), steps_lost=maybe(whole), seconds=maybe(number), usd=maybe(number)))
    ),
    result=maybe(fields()),
    usd=maybe(number),
    spent=maybe(SPENT),
    checkpoints=each(text),
    attempts=whole,
    files=whole,
    bytes=whole,
)


def record(value: Any) -> str:
    """Return "" if the value is the record of one run, with state and spec of the same run, otherwise an error text."""
    if wrong := _RECORD(value):
        return wrong
    parts = (("state", value["state"]), ("spec", value.get("spec") or value))
    return next((f"{name} belongs to another run" for name, part in parts if part["run_id"] != value["run_id"]), "")


STOPPED: Final = fields(run_id=run_id, state=state, was_live=flag)
STARTED: Final = fields(run_id=run_id, position=maybe(whole), hosts=each(name))
ENQUEUED: Final = fields(run_ids=each(run_id))
RESUMED: Final = fields(run_id=run_id, position=maybe(whole), hosts=each(name), checkpoints=each(text))
REMOVED: Final = fields(run_id=run_id, files=whole, bytes=whole)
HELD: Final = each(
    fields(run_id=run_id, hosts=each(name), task=maybe(text), every=maybe(flag), started_by=maybe(STARTED_BY))
)
_HOLDING: Final = fields(holding=flag)
_WAITING: Final = fields(alive=flag)
LIVE: Final = fields(live=HELD, queued=each(run_id), replaced=maybe(each(REPLACED)))
REFUSED: Final = fields(live=run_id, state=text, held=HELD)


def hold(value: Any) -> str:
    """Return "" if the value is an answer to a request to hold nodes, otherwise an error text.

    The answer is one of three: whether the nodes are held, whether the master still waits, or the live run that
    prevents the hold.
    """
    others = {"live": REFUSED, "alive": _WAITING} if isinstance(value, Mapping) else {}
    return next((check for name, check in others.items() if name in value), _HOLDING)(value)


class Counts(dict[str, Any]):
    """The counts that a node reports after staging. Access to a missing field raises AnswerError."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        super().__init__(values)
        self._where = where

    def __missing__(self, key: str) -> NoReturn:
        raise AnswerError("a staging command", dict(self), f"{key} is missing", where=self._where)


_DIGESTS: Final = ("digest", "listing")


def counts(value: Any) -> str:
    """Return "" if the value maps the names of a node's counts to whole numbers, otherwise an error text.

    The fields `digest` and `listing` must be text.
    """
    if not isinstance(value, Mapping):
        return "must be an object"
    rules = ((name, text if name in _DIGESTS else whole) for name in value)
    return next((f"{name!a} {wrong}" for name, rule in rules if (wrong := rule(value[name]))), "")

"""The progress of a run on the laptop: merge the messages of its supervisor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from cluster import master_answers as answers
from cluster.master_answers import AnswerError


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunProgress:
    """A run's progress at one moment. Fields that no message has reported yet are None."""

    run_id: str = ""
    state: str = "starting"
    reason: str = ""
    started: float | None = None
    """Start of the run, Unix time on the master's clock. `updated` uses the same clock."""
    updated: float | None = None
    epochs: int | None = None
    epoch: int | None = None
    step: int | None = None
    steps_per_epoch: int | None = None
    images_per_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    test_accuracy: float | None = None
    validation_accuracy: float | None = None
    """Accuracy on images held back from training. Runs that hold images back are tested only at their end."""
    eta_s: float | None = None
    next_line: int = 0
    """First line of metrics.jsonl that was not received. A new connection continues there."""
    next_log_line: int = 0
    """First line of the run's log that was not received, if the log is followed too."""
    last_lines: tuple[str, ...] = ()
    bound: str = ""
    """The cost or time limit that stopped the run, and what was spent; else ""."""
    usd_per_hour: float | None = None
    """Price of the run's own nodes and the master, from its supervisor; None if the supervisor does not
    know a price.
    """

    @property
    def is_final(self) -> bool:
        """Return whether the run has ended: succeeded, failed or stopped."""
        return self.state in ("succeeded", "failed", "stopped")

    @property
    def fraction(self) -> float:
        """Return the completed part of the training, 0 to 1; 0 as long as it is unknown."""
        if self.state == "succeeded":
            return 1.0
        if not (self.epochs and self.steps_per_epoch and self.epoch):
            return 0.0
        return min(1.0, ((self.epoch - 1) + (self.step or 0) / self.steps_per_epoch) / self.epochs)


def parse_message(line: str) -> dict[str, Any] | None:
    """Parse one line of the supervisor's `follow` to an object with a `type`.

    Returns None for other text, such as a login banner, and for a metric without a record.
    """
    try:
        message = answers.parse(line)
    except ValueError:
        return None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return None
    return message if message["type"] != "metric" or isinstance(message.get("record"), dict) else None


def reduce(progress: RunProgress, message: dict[str, Any]) -> RunProgress:
    """Return the progress after one message. Unknown types and fields are ignored, because the master may run a newer
    version.

    Raises AnswerError for a message about another run.
    """
    match message["type"]:
        case "state":
            spent, last_lines = message.get("spent"), message.get("last_lines")
            spent = spent if isinstance(spent, dict) else {}
            reached = spent.get("reached")
            return dataclasses.replace(
                progress,
                run_id=_same_run(message.get("run_id", progress.run_id), progress.run_id),
                state=str(message.get("state", progress.state)),
                reason=str(message.get("reason", "")),
                started=_moment(message, "started", progress.started),
                updated=_moment(message, "updated", progress.updated),
                last_lines=tuple(map(str, last_lines)) if isinstance(last_lines, list) else (),
                bound=reached if isinstance(reached, str) and message.get("state") == "stopped" else "",
                usd_per_hour=_number(spent, "usd_per_hour", None),
            )
        case "heartbeat":
            return dataclasses.replace(progress, updated=_moment(message, "time", progress.updated))
        case "log":
            run_id = _same_run(message.get("run_id", progress.run_id), progress.run_id)
            return dataclasses.replace(progress, run_id=run_id, next_log_line=_whole(message, "next", 0) or 0)
        case "metric" if isinstance(message.get("record"), dict):
            record = message["record"]
            seen = dataclasses.replace(
                progress,
                next_line=max(progress.next_line, (_whole(message, "line", progress.next_line) or 0) + 1),
                updated=_moment(record, "time", progress.updated),
            )
            return _reduce_record(seen, record)
    return progress


def _same_run(run_id: object, followed: str) -> str:
    """Return the id of the run that a message is about. Raises AnswerError if it is not the followed run, or is
    invalid.
    """
    wrong = answers.run_id(run_id) or ("" if followed in ("", run_id) else f"it is about another run than {followed}")
    if wrong:
        raise AnswerError("`follow`", run_id, wrong)
    return str(run_id)


def _reduce_record(progress: RunProgress, record: dict[str, Any]) -> RunProgress:
    """Return the progress after a record of metrics.jsonl. Invalid values are ignored."""
    event = record.get("event")
    fields = _FIELDS.get(event, {}) if isinstance(event, str) else {}
    changes = {name: read(record, key, getattr(progress, name)) for name, (key, read) in fields.items()}
    if event == "epoch":
        changes["step"] = progress.steps_per_epoch
    if event == "end":
        changes["eta_s"] = 0.0
    return dataclasses.replace(progress, **changes)


def _number(message: dict[str, Any], key: str, otherwise: float | None) -> float | None:
    value = message.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _moment(message: dict[str, Any], key: str, otherwise: float | None) -> float | None:
    return otherwise if answers.moment(message.get(key)) else float(message[key])


def _whole(message: dict[str, Any], key: str, otherwise: int | None) -> int | None:
    value = message.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


_FIELDS: Final[Mapping[str, Mapping[str, tuple[str, Callable[..., Any]]]]] = {
    "start": {"epochs": ("epochs", _whole), "steps_per_epoch": ("steps_per_epoch", _whole)},
    "step": {
        "epoch": ("epoch", _whole),
        "step": ("step", _whole),
        "steps_per_epoch": ("steps_per_epoch", _whole),
        "images_per_s": ("images_per_s", _number),
        "loss": ("loss", _number),
        "accuracy": ("accuracy", _number),
        "eta_s": ("eta_s", _moment),
    },
    "epoch": {
        "epoch": ("epoch", _whole),
        "images_per_s": ("images_per_s", _number),
        "loss": ("train_loss", _number),
        "accuracy": ("train_accuracy", _number),
        "test_accuracy": ("test_accuracy", _number),
        "validation_accuracy": ("validation_accuracy", _number),
    },
    "end": {"test_accuracy": ("test_accuracy", _number)},
}
"""Progress fields that each event of a record updates, with the record's key and the function to read it."""


def log_lines(message: Mapping[str, Any]) -> list[str]:
    """Return the log lines in a message from `follow`; [] for other messages."""
    lines = message.get("lines") if message["type"] == "log" else []
    return list(map(str, lines)) if isinstance(lines, list) else []

"""Write each call of the AWS API, with its error and the shape of its answer, to the file that a variable names."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from boto3.session import Session

VARIABLE: Final = "DEEPCDK_AWS_CALLS"
"""Name of the variable with the path of the file, to which every process that has the variable appends."""
_CALL: Final = "deepcdk_call"
"""Key in botocore's context of a call, under which its model and its start are kept."""


def log_calls(session: Session, path: Path) -> None:
    """Append a line of JSON to `path` for each call that a client of this session makes.

    A line has `service`, `operation`, `seconds` (with botocore's own retries), `retries`, `error` (`code` and
    `message`, or null) and `fields`: the paths of the answer's fields, without their values, so that nothing of an
    account but the texts of its errors is in the file.
    """
    lock = threading.Lock()

    def started(model: Any, context: dict[str, Any], **_: Any) -> None:
        context[_CALL] = (model, time.monotonic())

    def append(context: Mapping[str, Any], answer: Mapping[str, Any], error: dict[str, str] | None) -> None:
        model, began = context[_CALL]
        line = {
            "service": model.service_model.service_name,
            "operation": model.name,
            "seconds": round(time.monotonic() - began, 3),
            "retries": answer.get("ResponseMetadata", {}).get("RetryAttempts", 0),
            "error": error,
            "fields": sorted({found for found in field_paths(answer) if not found.startswith(_OUTSIDE)}),
        }
        text = json.dumps(line) + "\n"
        with lock, path.open("a", encoding="utf-8") as file:
            file.write(text)

    def answered(context: Mapping[str, Any], parsed: Mapping[str, Any], **_: Any) -> None:
        error = parsed.get("Error")
        refusal = {"code": str(error.get("Code", "")), "message": str(error.get("Message", ""))} if error else None
        append(context, parsed, refusal)

    def unanswered(context: Mapping[str, Any], exception: Exception, **_: Any) -> None:
        append(context, {}, {"code": type(exception).__name__, "message": str(exception)})

    handlers: dict[str, Callable[..., None]] = {
        "before-call": started,
        "after-call": answered,
        "after-call-error": unanswered,
    }
    for event, handler in handlers.items():
        session.events.register(event, handler)


_TEMPLATE: Final = "TemplateBody"
"""Of GetTemplate, which botocore parses."""
_OUTSIDE: Final = ("ResponseMetadata", "Error")
"""What botocore adds to every answer."""


def field_paths(value: object, path: str = "") -> Iterator[str]:
    """Yield the path of each leaf of an answer: `Reservations[].Instances[].InstanceId`.

    A template is one leaf: what is in it is ours, not AWS's.
    """
    if isinstance(value, Mapping) and not path.endswith(_TEMPLATE):
        for key, each in value.items():
            yield from field_paths(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for each in value:
            yield from field_paths(each, f"{path}[]")
    else:
        yield path


def requested_log() -> Path | None:
    """Return the file that the variable names, or None."""
    given = os.environ.get(VARIABLE, "")
    return Path(given) if given else None

"""Checks of every call's parameters against AWS's own service models, before the call is executed.

The models (botocore's) contain each parameter's requirement, minimum and maximum length or value, pattern and allowed
values. The services check these first, and report all violations in one error. moto checks few of them. Some limits are
only in the API reference: `DOCUMENTED`.

EC2, S3 and SQS are not checked. Their models contain almost no constraints, and their errors have another form.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import regex
from moto.core.exceptions import ServiceException
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import determine_request_protocol
from moto.core.responses import ActionResult, BaseResponse
from moto.core.utils import get_service_model

from localcloud.api.loopback import ACCESS_KEY
from localcloud.api.monkeypatch import RefusalError, around

CODES: Final[Mapping[str, str]] = {
    "autoscaling": "ValidationError",
    "budgets": "ValidationException",
    "cloudformation": "ValidationError",
    "cloudwatch": "ValidationError",
    "ecr": "InvalidParameterException",
    "efs": "ValidationException",
    "fsx": "ValidationException",
    "iam": "ValidationError",
    "kms": "ValidationException",
    "logs": "InvalidParameterException",
    "sns": "ValidationError",
    "ssm": "ValidationException",
    "sts": "ValidationError",
}
"""The checked services with their error codes."""

DOCUMENTED: Final[Mapping[tuple[str, str], Mapping[str, int]]] = {
    # "The maximum value is 100": API reference of every Describe action with this parameter.
    ("autoscaling", "MaxRecords"): {"max": 100},
    ("cloudformation", "TemplateBody"): {"min": 1, "max": 51_200},
    ("kms", "PendingWindowInDaysType"): {"min": 7, "max": 30},
}
"""Limits by service and shape from the API reference that the model lacks or defines more widely."""

# Java writes a character beyond U+FFFF as two surrogates.
_BEYOND_BMP: Final = (r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF")
_RESERVED: Final = "aws:cloudformation:"


@around(BaseResponse, "call_action")
def _call_action(original: Any, self: Any) -> Any:
    """Execute a request's action, or return an error if its parameters violate the service's model."""
    broken = _check(self)
    if not broken:
        return original(self)
    text = f"{len(broken)} validation error{'s' if len(broken) > 1 else ''} detected: {'; '.join(broken)}"
    return refusal(self, RefusalError(CODES[self.boto3_service_name], text))


def refusal(responses: Any, error: ServiceException) -> tuple[int, dict[str, Any], Any]:
    """Return an error as the response of `call_action`: status, headers (with the status again) and body."""
    status, headers, body = responses.serialized(ActionResult(error))
    return status, {**headers, "status": str(status)}, body


def _check(responses: Any) -> list[str]:
    """Return the violations of the service's model by a request's parameters, in AWS's words.

    The list is empty for a service that is not in `CODES`, or an unknown action.
    """
    service = responses.boto3_service_name
    if service not in CODES:
        return []
    model: Any = get_service_model(service)
    action = responses._get_action()
    if action not in model.operation_names:
        return []
    operation = model.operation_model(action)
    if operation.input_shape is None:
        return []
    # Only CloudFormation itself may set reserved tags.
    reserved = _RESERVED if responses.get_access_key() == ACCESS_KEY else ""
    return list(violations(service, operation.input_shape, _parameters(responses, operation), reserved=reserved))


def _parameters(responses: Any, operation: Any) -> Mapping[str, Any]:
    """Return a request's parameters with the names of the service's model."""
    if responses.automated_parameter_parsing:
        found: Mapping[str, Any] = responses.params
        return found
    request = responses.normalized_request
    protocol = determine_request_protocol(operation.service_model, request.content_type)
    parser: Any = PROTOCOL_PARSERS[protocol](operation, map_type=dict)
    given = {
        "method": request.method,
        "values": request.values,
        "headers": request.headers,
        "body": request.data,
        "url_path": request.path,
        "url_params": responses.uri_match,
    }
    parsed: Mapping[str, Any] = parser.parse(given)
    return parsed


def violations(service: str, shape: Any, value: Any, path: str = "", *, reserved: str = "") -> Iterator[str]:
    """Yield, in AWS's words, each constraint of a model's shape that a value violates.

    `service` is a name of boto3 (`iam`), and `path` the value's path in the request. A text with the prefix `reserved`
    matches every pattern, if `reserved` is not empty.
    """
    inner = functools.partial(violations, service, reserved=reserved)
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            where = f"{path}.{_lower(name)}" if path else _lower(name)
            if (given := value.get(name)) is not None:
                yield from inner(member, given, where)
            elif name in shape.required_members:
                yield f"Value null at '{where}' failed to satisfy constraint: Member must not be null"
        return
    constraint = _broken(service, shape, value, reserved)
    if constraint:
        shown = "Value" if shape.metadata.get("sensitive") else f"Value '{_java(value)}'"
        yield f"{shown} at '{path}' failed to satisfy constraint: Member must {constraint}"
    if shape.type_name == "list":
        for number, each in enumerate(value, start=1):
            yield from inner(shape.member, each, f"{path}.{number}.member")
    elif shape.type_name == "map":
        for key, each in value.items():
            yield from inner(shape.value, each, f"{path}.{key}.member")


def _broken(service: str, shape: Any, value: Any, reserved: str) -> str:
    """Return the rule that a value violates, such as `have length less than or equal to 64`, or "".

    It completes the sentence "Member must ...". The members of the value are not checked.
    """
    limits = {**shape.metadata, **DOCUMENTED.get((service, shape.name), {})}
    if shape.type_name in ("timestamp", "boolean"):
        return ""
    what, size = ("length", len(value)) if isinstance(value, str | bytes | list | dict) else ("value", value)
    if "max" in limits and size > limits["max"]:
        return f"have {what} less than or equal to {limits['max']}"
    if "min" in limits and size < limits["min"]:
        return f"have {what} greater than or equal to {limits['min']}"
    if limits.get("enum") and value not in limits["enum"]:
        return f"satisfy enum value set: [{', '.join(limits['enum'])}]"
    pattern = limits.get("pattern")
    if pattern and not (reserved and value.startswith(reserved)) and not compiled(pattern).fullmatch(value):
        return f"satisfy regular expression pattern: {pattern}"
    return ""


@functools.cache
def compiled(pattern: str) -> Any:
    """Compile a pattern of a model, which has Java's syntax."""
    return regex.compile(pattern.replace(*_BEYOND_BMP))


def _lower(name: str) -> str:
    return name[:1].lower() + name[1:]


def _java(value: Any) -> str:
    """Return a value in the form of AWS's error texts."""
    if isinstance(value, list):
        return f"[{', '.join(_java(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={_java(each)}' for key, each in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else str(value)

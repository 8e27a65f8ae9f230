"""The values in which a resource differs between two templates, as far as they are readable."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_TEXT_LENGTH: Final = 40
"""Longer values, such as user data, are not shown."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One value that differs."""

    name: str
    """Path of the property, such as LaunchTemplateData.InstanceType; or just the name if the path is unknown."""
    before: str
    """"" if there was none, or it is unknown or too long."""
    after: str

    def __str__(self) -> str:
        """Return the last part of the path, and the values as far as they are known."""
        name = self.name.rsplit(".", 1)[-1]
        if not (self.before or self.after):
            return name
        return f"{name} {self.before or 'none'} -> {self.after or 'none'}"


def differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    details: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, tuple[str, str]],
) -> Iterator[Difference]:
    """Yield the differences between the templates, then those that follow from changed parameters."""
    yield from compare(old.get("Properties", {}), new.get("Properties", {}))
    for cause in sorted({str(detail.get("CausingEntity")) for detail in details} & parameters.keys()):
        for path in _uses(new.get("Properties", {}), cause):
            before, after = parameters[cause]
            yield Difference(name=path, before=before, after=after)


def _uses(value: Any, parameter: str, path: str = "") -> Iterator[str]:
    """Yield the paths at which a parameter is used."""
    if value == {"Ref": parameter}:
        yield path
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _uses(each, parameter, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for each in value:
            yield from _uses(each, parameter, path)


def compare(old: Any, new: Any, path: str = "") -> Iterator[Difference]:
    """Yield the plain values in which two values of a template differ; a function counts as one value."""
    if old == new:
        return
    if _is_object(old) and _is_object(new):
        for key in sorted({*old, *new}):
            yield from compare(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for one, other in zip(old, new, strict=True):
            yield from compare(one, other, path)
    else:
        yield Difference(name=path, before=_shown(old), after=_shown(new))


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and not any(key == "Ref" or key.startswith("Fn::") for key in value)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping) and set(value) == {"Ref"}:
        return str(value["Ref"])
    text = str(value) if isinstance(value, str | int | float) else json.dumps(value, separators=(",", ":"))
    return text if 0 < len(text) <= _TEXT_LENGTH and "Fn::" not in text and "\n" not in text else ""


def changed_parameters(
    stack: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[str, str]]:
    """Return before and after of each parameter that changes, from DescribeStacks and DescribeChangeSet."""

    def values(parameters: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        return {
            each["ParameterKey"]: str(each.get("ResolvedValue") or each.get("ParameterValue") or "")
            for each in parameters
        }

    before, after = values(stack), values(wanted)
    return {key: (before.get(key, ""), value) for key, value in after.items() if before.get(key, "") != value}

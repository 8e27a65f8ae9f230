"""CloudFormation's schemas of resource types, and the check of properties against them.

The schemas are from CloudFormation's registry, as packaged by cfn-lint for us-east-1. cfn-lint adds constraints from
the services' own models and documentation. Only its files are read; the linter itself is not imported.

AWS checks a template's properties with known values when a change set or stack is created ("early validation"). It
checks a resource's properties again when it creates the resource. The error texts are from CloudFormation's own
validator (github.com/aws-cloudformation/cloudformation-resource-schema), which prints the keyword instead of a value.
Errors of cfn-lint's additional keywords are worded alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import ipaddress
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import regex

Schema = Mapping[str, Any]

UNKNOWN: Final = object()
"""Placeholder for a value of a resource that does not exist yet. It violates no schema."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Violation:
    """A property that violates its schema."""

    path: tuple[str, ...]
    """Path within the resource's properties."""
    text: str


@functools.cache
def _files() -> tuple[Path, Mapping[str, str]]:
    """Return the schemas' folder, and the file name (without extension) of each resource type.

    Raises RuntimeError if cfn-lint is not installed.
    """
    spec = importlib.util.find_spec("cfnlint")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("cfn-lint is not installed; to install it: pip install cfn-lint==1.58.0")
    folder = Path(spec.submodule_search_locations[0]) / "data" / "schemas"
    names: Mapping[str, str] = json.loads((folder / "providers" / "us-east-1.json").read_text(encoding="utf-8"))
    return folder / "resources", names


@functools.cache
def schema_of(type_name: str) -> Schema | None:
    """Return the schema of a resource type, or None if the registry does not have it."""
    folder, names = _files()
    if type_name not in names:
        return None
    found: Schema = json.loads((folder / f"{names[type_name]}.json").read_text(encoding="utf-8"))
    return found


def check(type_name: str, properties: Mapping[str, Any]) -> list[Violation]:
    """Return the schema violations of a resource's properties; none for a type without a schema.

    UNKNOWN marks values that are not known yet.
    """
    schema = schema_of(type_name)
    if schema is None:
        return []
    return list(_violations(schema, {"type": "object", **schema}, properties, ()))


def _violations(root: Schema, schema: Schema, value: Any, path: tuple[str, ...]) -> Iterator[Violation]:
    """Yield the violations of a schema by a value and its members. `root` has the schema's definitions."""
    if value is UNKNOWN:
        return
    while "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rsplit("/", 1)[1]]
    given, fits = _coerced(schema, value)
    if not fits:
        wanted = schema["type"] if isinstance(schema["type"], str) else ", ".join(schema["type"])
        yield Violation(path=path, text=f"expected type: {wanted.capitalize()}, found: {_kind(value)}")
        return
    for keyword, rule in _RULES.items():
        if keyword in schema and (text := rule(given, schema[keyword])):
            yield Violation(path=path, text=text)
    yield from _among(root, schema, value, path)
    if isinstance(value, Mapping):
        yield from _members(root, schema, value, path)
    elif isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from _violations(root, schema["items"], each, (*path, str(number)))


def _members(root: Schema, schema: Schema, value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Violation]:
    """Yield the violations by an object's keys: a missing key, an unknown key, or an invalid value of a key."""
    for key in schema.get("required", ()):
        if key not in value:
            yield Violation(path=path, text=f"required key [{key}] not found")
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, each in value.items():
        if key in known:
            yield from _violations(root, known[key], each, (*path, key))
        elif known and schema.get("additionalProperties") is False and not any(regex.search(p, key) for p in patterns):
            yield Violation(path=path, text=f"extraneous key [{key}] is not permitted")


def _among(root: Schema, schema: Schema, value: Any, path: tuple[str, ...]) -> Iterator[Violation]:
    """Yield a violation if a value matches no alternative of anyOf or oneOf, or several of oneOf.

    A value with unknown parts may match several.
    """
    for keyword in ("anyOf", "oneOf"):
        if keyword not in schema:
            continue
        fitting = sum(not list(_violations(root, each, value, path)) for each in schema[keyword])
        if not fitting or (keyword == "oneOf" and fitting > 1 and not _has_unknown(value)):
            yield Violation(path=path, text=f"failed validation constraint for keyword [{keyword}]")


def _has_unknown(value: Any) -> bool:
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return value is UNKNOWN or any(_has_unknown(each) for each in members)


def _coerced(schema: Schema, value: Any) -> tuple[Any, bool]:
    """Return a value converted to its schema's type, and whether the value fits.

    For example, templates may contain the text "true" for a boolean.
    """
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if not kinds:
        return value, True
    for kind in kinds:
        if isinstance(value, _PYTHON[kind]) and not (kind in ("integer", "number") and isinstance(value, bool)):
            return value, True
    if "string" in kinds and isinstance(value, bool | int | float):
        return (str(value).lower() if isinstance(value, bool) else str(value)), True
    if isinstance(value, str):
        return _read(kinds, value)
    return value, False


def _read(kinds: tuple[str, ...], text: str) -> tuple[Any, bool]:
    """Return text converted to a boolean, number or object if the types (`kinds`) allow it, and whether it fits."""
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true", True
    number = regex.fullmatch(r"-?\d+(\.\d+)?", text)
    if number and ("number" in kinds or ("integer" in kinds and not number[1])):
        return float(text) if number[1] else int(text), True
    if "object" in kinds:  # a JSON document
        with contextlib.suppress(ValueError):
            found = json.loads(text)
            return found, isinstance(found, dict)
    return text, False


_PYTHON: Final[Mapping[str, Any]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": int | float,
    "array": list,
    "object": Mapping,
    "null": type(None),
}


def _kind(value: Any) -> str:
    """Return the name of a value's type in error texts."""
    if isinstance(value, Mapping):
        return "JSONObject"
    names = {"list": "JSONArray", "str": "String", "bool": "Boolean", "int": "Integer"}
    return names.get(type(value).__name__, "Number")


def _scrubbed(keyword: str, broken: Callable[[Any, Any], bool]) -> Callable[[Any, Any], str]:
    """Return a rule (see `_RULES`) whose error text contains only the keyword, because CloudFormation prints no values.

    `broken` takes the value and the keyword's argument in the schema, and returns whether the value is invalid.
    """
    return lambda value, given: f"failed validation constraint for keyword [{keyword}]" if broken(value, given) else ""


def _bound(kind: type[str | list[Any]], text: str, broken: Callable[[int, int], bool]) -> Callable[[Any, Any], str]:
    """Return a rule (see `_RULES`) for a minimum or maximum length of values of type `kind`.

    `text` has placeholders for the limit and the length. `broken` takes the length and the limit.
    """
    return lambda value, limit: (
        text.format(limit, len(value)) if isinstance(value, kind) and broken(len(value), limit) else ""
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _repeats(value: Any, unique: bool) -> str:
    if not unique or not isinstance(value, list):
        return ""
    texts = [json.dumps(each, sort_keys=True, default=repr) for each in value if each is not UNKNOWN]
    return "array items are not unique" if len(set(texts)) < len(texts) else ""


def _present(value: Any, keys: list[str]) -> list[str]:
    return [key for key in keys if isinstance(value, Mapping) and key in value]


def _exactly_one(value: Any, keys: list[str]) -> str:
    found = len(_present(value, keys))
    return "" if found == 1 else f"exactly one of [{', '.join(keys)}] is required, found: {found}"


def _at_least_one(value: Any, keys: list[str]) -> str:
    return "" if _present(value, keys) else f"one of [{', '.join(keys)}] is required"


def _together(value: Any, given: Mapping[str, list[str]]) -> str:
    for key in _present(value, list(given)):
        if missing := [each for each in given[key] if each not in value]:
            return f"property [{key}] requires [{', '.join(missing)}]"
    return ""


def _apart(value: Any, given: Mapping[str, list[str]]) -> str:
    for key in _present(value, list(given)):
        if found := _present(value, given[key]):
            return f"property [{key}] excludes [{', '.join(found)}]"
    return ""


def _no_network(value: Any, kind: str) -> bool:
    """Return whether a value violates the format `kind`. Only ipv4-network is checked: a network with prefix length."""
    if kind != "ipv4-network" or not isinstance(value, str):
        return False
    try:
        ipaddress.IPv4Network(value, strict=False)
    except ValueError:
        return True
    return "/" not in value


_RULES: Final[Mapping[str, Callable[[Any, Any], str]]] = {
    "enum": _scrubbed("enum", lambda value, allowed: isinstance(value, str | int) and value not in allowed),
    "enumCaseInsensitive": _scrubbed(
        "enum", lambda value, allowed: isinstance(value, str) and value.lower() not in map(str.lower, allowed)
    ),
    "pattern": _scrubbed("pattern", lambda value, pattern: isinstance(value, str) and not regex.search(pattern, value)),
    "minLength": _bound(str, "expected minLength: {}, actual: {}", operator.lt),
    "maxLength": _bound(str, "expected maxLength: {}, actual: {}", operator.gt),
    "minItems": _bound(list, "expected minimum item count: {}, found: {}", operator.lt),
    "maxItems": _bound(list, "expected maximum item count: {}, found: {}", operator.gt),
    "minimum": _scrubbed("minimum", lambda value, least: _number(value) and value < least),
    "maximum": _scrubbed("maximum", lambda value, most: _number(value) and value > most),
    "uniqueItems": _repeats,
    "format": _scrubbed("format", _no_network),
    "requiredXor": _exactly_one,
    "requiredOr": _at_least_one,
    "dependentRequired": _together,
    "dependentExcluded": _apart,
}
"""Rules by keyword, which return an error text or "". `_violations` checks `type`, `required` and the like."""

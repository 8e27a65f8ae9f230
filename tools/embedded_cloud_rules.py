"""Write docs/embedded-cloud-rules.md: what the embedded cloud checks of each call and each property, from its code.

python -m tools.embedded_cloud_rules
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import localcloud.api
from localcloud.api import constraints
from localcloud.api.cloudformation import schemas
from localcloud.api.cloudformation.types.allowlist import RESOURCE_TYPES
from localcloud.api.cloudformation.types.resource_type import ResourceType

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "embedded-cloud-rules.md"
HEAD: Final = """# What the embedded cloud checks

What AWS refuses, the [embedded cloud](embedded-cloud.md) is to refuse with AWS's code. A rule that it does not know is
not passed silently: this page lists each property of each resource type with what is checked of it, and says where
nothing is. `python -m tools.embedded_cloud_rules` writes it from the code.

## Calls

Of every call of these services each parameter is checked against the service's own model (botocore's): whether it is
required, its length or value, its pattern and its values. EC2, S3 and SQS are left out, because their models state next
to nothing.

| service | error code |
|---|---|
"""
LIMITS: Final = """
Limits that only the API reference states:

| service | parameter's shape | from | to |
|---|---|---|---|
"""
ACTIONS: Final = """
And of single actions:

| action | what is checked |
|---|---|
"""
TYPES: Final = """
## Resource types

Each property is honoured (it does here what it does on AWS), inert (accepted without effect) or refused. Beside each
stands what is checked: what its type's schema in CloudFormation's registry states, as cfn-lint 1.58 packages it, when a
change set or stack is made and again when the resource is; and what the service checks. "unchecked" means that anything
of the right type is taken here; what the rule pack cdk-preflight refuses when a template is made is not repeated.
Properties that the registry has and that are not listed are refused by name.
"""
# What the schema says of a property beside its type, in this order.
_BOUNDS: Final = (
    ("length", "minLength", "maxLength"),
    ("items", "minItems", "maxItems"),
    ("value", "minimum", "maximum"),
)
_WORDS: Final = (
    ("enum", "values"),
    ("enumCaseInsensitive", "values"),
    ("pattern", "pattern"),
    ("uniqueItems", "each once"),
    ("anyOf", "alternatives"),
    ("oneOf", "alternatives"),
    ("requiredXor", "one of several keys"),
    ("requiredOr", "one of several keys"),
    ("dependentRequired", "keys that go together"),
    ("dependentExcluded", "keys that exclude each other"),
)


def page() -> str:
    """Return the whole page."""
    services = "".join(f"| {name} | {code} |\n" for name, code in sorted(constraints.CODES.items()))
    limits = "".join(
        f"| {service} | {shape} | {bounds.get('min', '')} | {bounds.get('max', '')} |\n"
        for (service, shape), bounds in sorted(constraints.DOCUMENTED.items())
    )
    actions = "".join(f"| `{action}` | {'; '.join(rules)} |\n" for action, rules in sorted(_actions().items()))
    types = "".join(_section(each) for _, each in sorted(RESOURCE_TYPES.items()))
    return HEAD + services + LIMITS + limits + ACTIONS + actions + TYPES + types


def _actions() -> dict[str, list[str]]:
    """Return what each module of the API declares to check, by action."""
    found: dict[str, list[str]] = {}
    for module in pkgutil.walk_packages(localcloud.api.__path__, "localcloud.api."):
        rules: Mapping[str, str] = getattr(importlib.import_module(module.name), "RULES", {})
        for action, rule in rules.items():
            found.setdefault(action, []).append(rule)
    return found


def _section(resource_type: ResourceType) -> str:
    rows = "".join(
        f"| `{path}` | {status} | {_checked(resource_type, path, schema)} |\n"
        for path, status, schema in sorted(_properties(resource_type), key=lambda row: row[0])
    )
    refused = "".join(f"| `{path}` | refused | {reason} |\n" for path, reason in sorted(resource_type.refused.items()))
    head = "\n| property | is | checked |\n|---|---|---|\n"
    return f"\n### {resource_type.name}\n{head}{rows}{refused}"


def _properties(resource_type: ResourceType) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield path, status and schema of each accepted property, of those within others too."""
    root = schemas.schema_of(resource_type.name) or {}
    for status, paths in (("honoured", resource_type.honoured), ("inert", resource_type.inert)):
        for path in paths:
            yield from _within(root, path, status, _found(root, path))


def _found(root: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the schema at a path; an empty one where the registry has none."""
    schema = root
    for part in path.split("."):
        schema = _object(root, schema).get("properties", {}).get(part, {})
    return _resolved(root, schema)


def _resolved(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return schemas.resolved(root, schema)


def _object(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an object, or of each item of a list of them."""
    schema = _resolved(root, schema)
    while "items" in schema:
        schema = _resolved(root, schema["items"])
    return schema


def _within(
    root: Mapping[str, Any], path: str, status: str, schema: Mapping[str, Any]
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    yield path, status, schema
    for key, member in _object(root, schema).get("properties", {}).items():
        yield from _within(root, f"{path}.{key}", status, _resolved(root, member))


def _checked(resource_type: ResourceType, path: str, schema: Mapping[str, Any]) -> str:
    parts = list(_stated(schema))
    if _required(resource_type, path):
        parts.insert(0, "required")
    if "items" in schema:
        root = schemas.schema_of(resource_type.name) or {}
        parts += [f"each: {each}" for each in _stated(_resolved(root, schema["items"]))]
    if path in resource_type.rules:
        parts.append(f"**{resource_type.rules[path]}**")
    return "; ".join(parts) or "unchecked"


def _required(resource_type: ResourceType, path: str) -> bool:
    root = schemas.schema_of(resource_type.name) or {}
    parent, _, name = path.rpartition(".")
    return name in _object(root, _found(root, parent) if parent else root).get("required", ())


def _stated(schema: Mapping[str, Any]) -> Iterator[str]:
    for what, least, most in _BOUNDS:
        if least in schema or most in schema:
            yield f"{what} {schema.get(least, '')} to {schema.get(most, '')}".replace(" to ", "…").replace("  ", " ")
    for keyword, word in _WORDS:
        if schema.get(keyword):
            yield word
    if schema.get("format") == "ipv4-network":
        yield "a network's range"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

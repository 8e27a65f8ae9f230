"""Parse a template (JSON or YAML) into plain values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from localcloud.api.cloudformation.errors import ValidationError

Template = Mapping[str, Any]

# Supported sections, and sections that do not affect resources.
_SECTIONS = frozenset({"Resources", "Parameters", "Mappings", "Conditions", "Outputs", "Rules"})
_INERT_SECTIONS = frozenset({"AWSTemplateFormatVersion", "Description", "Metadata"})


class _Loader(yaml.SafeLoader):
    """YAML loader that supports the short forms of intrinsic functions.

    The AWS CLI's own loader would convert `2012-10-17` in policies to a date.
    """


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    """Convert a YAML tag such as `!GetAtt` to the function's long form.

    Raises ValidationError if its value is a mapping.
    """
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = str(value).split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        raise ValidationError(f"Template format error: !{suffix} must have text or a list as its value, not a mapping")
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)
# Keep `2010-09-09` as text.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse(body: str) -> dict[str, Any]:
    """Parse a template; return its sections by name. Intrinsic functions are kept, in their long form.

    Raises ValidationError if it is neither JSON nor YAML, if a resource has no type, if there are no resources, or if a
    section is not supported.
    """
    try:
        template = json.loads(body) if body.lstrip().startswith("{") else yaml.load(body, Loader=_Loader)  # noqa: S506  # a safe loader
    except (ValueError, yaml.YAMLError) as error:
        raise ValidationError(f"Template format error: neither JSON nor YAML. ({error})") from None
    if not isinstance(template, dict):
        raise ValidationError("Template format error: unsupported structure.")
    for section in template:
        if section not in _SECTIONS | _INERT_SECTIONS:
            raise ValidationError(
                f"the embedded cloud does not support the section {section} of a template, only "
                f"{', '.join(sorted(_SECTIONS | _INERT_SECTIONS))}"
            )
    resources = template.get("Resources")
    if not isinstance(resources, dict) or not resources:
        raise ValidationError("Template format error: At least one Resources member must be defined.")
    for name, resource in resources.items():
        if not isinstance(resource, dict) or not isinstance(resource.get("Type"), str):
            raise ValidationError(
                f"Template format error: [/Resources/{name}] Every Resources object must contain a Type member."
            )
    return template


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object (dict) in a value at any depth, outermost first. The value itself is included if it is one."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from walk(each)
    elif isinstance(value, list):
        for each in value:
            yield from walk(each)

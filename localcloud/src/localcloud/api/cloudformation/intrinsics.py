"""Intrinsic functions and conditions of templates, and the dependencies between resources."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.template import Template, walk

NO_VALUE: Final = object()
"""Value of `AWS::NoValue`: the property or list item is omitted."""

FUNCTIONS: Final = frozenset(
    {
        "Ref",
        "Fn::GetAtt",
        "Fn::Join",
        "Fn::Split",
        "Fn::Select",
        "Fn::Sub",
        "Fn::FindInMap",
        "Fn::If",
        "Fn::GetAZs",
        "Fn::Base64",
        "Fn::ImportValue",
        "Fn::Equals",
        "Fn::And",
        "Fn::Or",
        "Fn::Not",
        "Fn::Contains",
    }
)
"""The supported functions."""

PSEUDO: Final = frozenset(
    {
        "AWS::AccountId",
        "AWS::NoValue",
        "AWS::NotificationARNs",
        "AWS::Partition",
        "AWS::Region",
        "AWS::StackId",
        "AWS::StackName",
        "AWS::URLSuffix",
    }
)

_PLACEHOLDER = re.compile(r"\$\{(!?)([^}]*)\}")


class Scope:
    """Resolver for the values of one template.

    `parameters`, `pseudo` (AWS::Region and others) and `exports` map names to values. `zones` is the result of
    Fn::GetAZs. `reference` returns a resource's id by logical id, and `attribute` its attribute by logical id and name.
    All methods raise ValidationError if a value cannot be resolved.
    """

    def __init__(
        self,
        template: Template,
        *,
        parameters: Mapping[str, Any],
        pseudo: Mapping[str, Any],
        zones: list[str],
        exports: Mapping[str, str],
        reference: Callable[[str], str],
        attribute: Callable[[str, str], Any],
    ) -> None:
        self._template = template
        self._parameters = parameters
        self._pseudo = pseudo
        self._zones = zones
        self._exports = exports
        self._reference = reference
        self._attribute = attribute
        self._conditions: dict[str, bool] = {}

    def condition(self, name: str) -> bool:
        """Return the value of the template's condition with this name. Raises ValidationError for an unknown name."""
        if name not in self._conditions:
            declared = self._template.get("Conditions", {})
            if name not in declared:
                raise ValidationError(f"Template format error: Unresolved condition dependency {name} in the template")
            self._conditions[name] = self.truth(declared[name])
        return self._conditions[name]

    def truth(self, value: Any) -> bool:
        """Return whether the body of a condition, or of a rule's assertion, is true.

        Raises ValidationError for an unsupported function.
        """
        if isinstance(value, dict) and len(value) == 1:
            ((key, argument),) = value.items()
            if key == "Condition":
                return self.condition(argument)
            if key == "Fn::Equals":
                left, right = (self.resolve(each) for each in argument)
                return str(left) == str(right)
            if key == "Fn::Not":
                return not self.truth(argument[0])
            if key == "Fn::And":
                return all(self.truth(each) for each in argument)
            if key == "Fn::Or":
                return any(self.truth(each) for each in argument)
            if key == "Fn::Contains":
                members, wanted = self.resolve(argument[0]), self.resolve(argument[1])
                return str(wanted) in [str(member) for member in members]
        raise ValidationError(
            f"Template format error: {value!r} is not a condition that the embedded cloud supports (Condition, "
            "Fn::Equals, Fn::Not, Fn::And, Fn::Or, Fn::Contains)"
        )

    def resolve(self, value: Any) -> Any:
        """Return a value with its intrinsic functions resolved, or NO_VALUE if the value is to be omitted.

        Raises ValidationError, for example for a reference to a resource that does not exist yet.
        """
        if isinstance(value, list):
            items = (self.resolve(each) for each in value)
            return [each for each in items if each is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((key, argument),) = value.items()
            if key in FUNCTIONS:
                return self._call(key, argument)
        pairs = ((key, self.resolve(each)) for key, each in value.items())
        return {key: each for key, each in pairs if each is not NO_VALUE}

    def _call(self, name: str, argument: Any) -> Any:
        """Return the result of an intrinsic function with this argument."""
        match name:
            case "Ref":
                return self._ref(argument)
            case "Fn::GetAtt":
                return self._get_attribute(argument)
            case "Fn::Join":
                return str(argument[0]).join(str(each) for each in self.resolve(argument[1]))
            case "Fn::Split":
                return str(self.resolve(argument[1])).split(argument[0])
            case "Fn::Select":
                return self._select(argument)
            case "Fn::Sub":
                return self._substitute(argument)
            case "Fn::FindInMap":
                return self._find_in_map([self.resolve(each) for each in argument])
            case "Fn::If":
                return self.resolve(argument[1] if self.condition(argument[0]) else argument[2])
            case "Fn::GetAZs":
                return list(self._zones)
            case "Fn::Base64":
                return base64.b64encode(str(self.resolve(argument)).encode()).decode()
            case "Fn::ImportValue":
                return self._import(str(self.resolve(argument)))
        return self.truth({name: argument})

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in self._pseudo:
            return self._pseudo[name]
        if name in self._parameters:
            return self._parameters[name]
        return self._reference(name)

    def _get_attribute(self, argument: Any) -> Any:
        name, key = split_attribute(argument)
        return self._attribute(name, str(self.resolve(key)))

    def _select(self, argument: Any) -> Any:
        index, members = int(self.resolve(argument[0])), self.resolve(argument[1])
        if not isinstance(members, list) or not 0 <= index < len(members):
            raise ValidationError(f"Template error: Fn::Select cannot select nonexistent value at index {index}")
        return members[index]

    def _substitute(self, argument: Any) -> str:
        text, given = (argument[0], argument[1]) if isinstance(argument, list) else (argument, {})

        def replace(match: re.Match[str]) -> str:
            literal, name = match[1], match[2].strip()
            if literal:
                return "${" + match[2] + "}"
            if name in given:
                return str(self.resolve(given[name]))
            return str(self._get_attribute(name) if "." in name else self._ref(name))

        return _PLACEHOLDER.sub(replace, text)

    def _find_in_map(self, path: list[Any]) -> Any:
        found: Any = self._template.get("Mappings", {})
        for key in path:
            if not isinstance(found, dict) or str(key) not in found:
                raise ValidationError(
                    f"Template error: Unable to get mapping for {'::'.join(str(each) for each in path)}"
                )
            found = found[str(key)]
        return found

    def _import(self, name: str) -> str:
        if name not in self._exports:
            raise ValidationError(f"No export named {name} found.")
        return self._exports[name]


def split_attribute(argument: Any) -> tuple[str, Any]:
    """Return the logical id and the attribute in the argument of Fn::GetAtt, which is a list or text (`Vpc.VpcId`).

    In a list, the attribute may be an unresolved intrinsic function.
    """
    name, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
    return name, attribute


def references(value: Any) -> set[str]:
    """Return every name that a value refers to with Ref, Fn::GetAtt or Fn::Sub.

    These are resources, parameters and pseudo parameters such as AWS::Region. Variables that Fn::Sub defines itself are
    left out.
    """
    found = set()
    for each in walk(value):
        if isinstance(each.get("Ref"), str):
            found.add(each["Ref"])
        if each.get("Fn::GetAtt"):
            found.add(split_attribute(each["Fn::GetAtt"])[0])
        sub = each.get("Fn::Sub")
        if sub:
            text, given = (sub[0], sub[1]) if isinstance(sub, list) else (sub, {})
            for literal, name in _PLACEHOLDER.findall(text):
                if not literal and name.strip() not in given:
                    found.add(name.strip().split(".", 1)[0])
    return found


def depends_on(resource: Mapping[str, Any]) -> list[str]:
    """Return the logical ids in a resource's DependsOn, which may be a string or a list; none without DependsOn."""
    given = resource.get("DependsOn", [])
    return [given] if isinstance(given, str) else list(given)


def dependencies(resources: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return for each resource the other resources that it refers to or lists in DependsOn."""
    return {
        name: (references(resource.get("Properties")) | set(depends_on(resource))) & (set(resources) - {name})
        for name, resource in resources.items()
    }


def order(needs: Mapping[str, set[str]]) -> list[str]:
    """Return the logical ids of the resources in dependency order, dependencies first.

    `needs` is the result of `dependencies`. Raises ValidationError for a circular dependency.
    """
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise ValidationError(f"Circular dependency between resources: [{', '.join(error.args[1])}]") from None

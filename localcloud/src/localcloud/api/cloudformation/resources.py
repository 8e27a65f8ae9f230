"""Create, update, replace and delete single resources through their types, and record how to undo it."""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError
from moto.core.exceptions import ServiceException

from localcloud.api.cloudformation import schemas
from localcloud.api.cloudformation.account import Account
from localcloud.api.cloudformation.errors import ResourceError, ServiceRefusalError
from localcloud.api.cloudformation.intrinsics import NO_VALUE
from localcloud.api.cloudformation.rolling_update import replaces_instances, roll
from localcloud.api.cloudformation.signals import Wait, creation_wait
from localcloud.api.cloudformation.stacks import Resource, Stack, Target
from localcloud.api.cloudformation.types.allowlist import RESOURCE_TYPES
from localcloud.api.cloudformation.types.resource_type import Physical, ResourceType
from localcloud.api.error_replies import bug_message

log = logging.getLogger("localcloud.api")

_SIZES = ("MinSize", "MaxSize", "DesiredCapacity")


class ResourceChanger:
    """Changes the resources of one stack to match a target."""

    def __init__(self, account: Account, stack: Stack) -> None:
        self.account = account
        self.stack = stack
        self.undo: list[Callable[[], None]] = []
        """Functions that undo the changes so far, oldest first. Each may raise ResourceError."""
        self.replaced: list[Resource] = []
        """Old resources after a replacement, to be deleted when the update has succeeded."""

    def note(self, resource: Resource, status: str, reason: str = "") -> None:
        """Record a resource's status as an event, and notify waiting requests."""
        with self.account.condition:
            self.stack.note(resource, status, reason)
            self.account.condition.notify_all()

    def apply(self, name: str, declaration: Mapping[str, Any], target: Target) -> Wait | None:
        """Create a new resource, or update or replace one whose properties or type changed. Others are left unchanged.

        `name` is the resource's logical id, and `declaration` its section of the target's template. Return the signals
        to wait for, or None. Raises ResourceError.
        """
        resource_type = RESOURCE_TYPES[declaration["Type"]]
        properties = self._resolve(declaration, target)
        existing = self.stack.resources.get(name)
        if existing is None or existing.physical is None:
            return self._make(name, resource_type, declaration, properties, target)
        old = existing.properties
        changed = {key for key in {*old, *properties} if old.get(key) != properties.get(key)}
        if not changed and existing.type == resource_type.name:
            existing.declaration = declaration
            return None
        if existing.type != resource_type.name or resource_type.update is None or changed & resource_type.replaced_by:
            _refuse_same_name(existing, resource_type, properties)
            self.note(
                existing,
                "UPDATE_IN_PROGRESS",
                "Requested update requires the creation of a new physical resource; hence creating one.",
            )
            return self._make(name, resource_type, declaration, properties, target, replaces=existing)
        self._change(existing, resource_type, declaration, properties, target)
        return None

    def _resolve(self, declaration: Mapping[str, Any], target: Target) -> dict[str, Any]:
        """Return a resource's properties with resolved functions. Raises ResourceError if a function has no value."""
        try:
            resolved = self.account.scope(self.stack, target).resolve(dict(declaration.get("Properties") or {}))
        except ServiceException as error:
            raise ResourceError(error.message) from None
        return {} if resolved is NO_VALUE else dict(resolved)

    def _make(
        self,
        name: str,
        resource_type: ResourceType,
        declaration: Mapping[str, Any],
        properties: Mapping[str, Any],
        target: Target,
        replaces: Resource | None = None,
    ) -> Wait | None:
        """Create a resource, or a replacement of the resource `replaces`. Return the signals to wait for, or None.

        Waits until the resource is stable. The way to undo this is added to `undo`, and `replaces` to `replaced`, to be
        deleted after the update. Raises ResourceError.
        """
        resource = Resource(logical_id=name, type=resource_type.name, declaration=declaration, properties=properties)
        with self.account.condition:
            self.stack.resources[name] = resource
        self.undo.append(lambda: self._unmake(resource, replaces))
        verb = "UPDATE" if replaces else "CREATE"
        self.note(resource, f"{verb}_IN_PROGRESS")

        def report(physical: Physical) -> None:
            resource.physical = physical

        context = self.account.context(self.stack, name, target.tags, report)

        def create() -> Physical:
            _validate(name, resource_type, properties)
            return resource_type.create(context, properties)

        resource.physical = self._call(resource, create)
        if replaces is not None:
            self.replaced.append(replaces)
        wait = creation_wait(declaration)
        self.note(resource, f"{verb}_IN_PROGRESS", "Resource creation Initiated")
        self.account.wait_until_stable(resource_type.name, resource.physical.id)
        if wait is None:
            self.note(resource, f"{verb}_COMPLETE")
        return wait

    def _unmake(self, resource: Resource, replaces: Resource | None) -> None:
        """Undo `_make`: delete the new resource, and restore the replaced one."""
        with self.account.condition:
            if replaces is not None:
                self.stack.resources[resource.logical_id] = replaces
            else:
                self.stack.resources.pop(resource.logical_id, None)
        self.drop(resource, on_create=True)

    def _change(
        self,
        resource: Resource,
        resource_type: ResourceType,
        declaration: Mapping[str, Any],
        properties: Mapping[str, Any],
        target: Target,
        *,
        undoing: bool = False,
    ) -> None:
        """Update a resource in place, and replace a group's instances if its policy requires. Raises ResourceError.

        The way to undo this is added to `undo`. With `undoing`, the update restores old properties during a rollback:
        nothing is added to `undo`, and the update waits for no signals.
        """
        old, old_declaration, old_made = resource.properties, resource.declaration, resource.physical
        if not undoing:
            self.undo.append(lambda: self._change(resource, resource_type, old_declaration, old, target, undoing=True))
        with self.account.condition:
            resource.signals.clear()
        self.note(resource, "UPDATE_IN_PROGRESS")
        context = self.account.context(self.stack, resource.logical_id, target.tags)
        given = _without_unmodified_sizes(declaration, old, properties)
        update = resource_type.update

        def change() -> Physical:
            if update is None or old_made is None:
                raise ResourceError(f"{resource_type.name} cannot be updated")
            _validate(resource.logical_id, resource_type, properties)
            return update(context, old_made, old, given)

        resource.physical = self._call(resource, change)
        resource.properties, resource.declaration = properties, declaration
        if replaces_instances(declaration, old, properties):
            roll(self.account, resource, functools.partial(self.note, resource, "UPDATE_IN_PROGRESS"), wait=not undoing)
        self.note(resource, "UPDATE_COMPLETE")

    def _call(self, resource: Resource, handler: Callable[[], Any]) -> Any:
        """Return a handler's result. Raises ResourceError with a readable reason for any exception of the handler."""
        try:
            return handler()
        except ClientError as error:
            found = error.response["Error"]
            raise ServiceRefusalError(found["Code"], found.get("Message", found["Code"])) from None
        except ParamValidationError as error:
            raise ResourceError(f"Properties validation failed for resource {resource.logical_id}: {error}") from None
        except KeyError as error:
            raise ResourceError(
                f"Properties validation failed for resource {resource.logical_id} with message: "
                f"required key [{error.args[0]}] not found"
            ) from None
        except ResourceError:
            raise
        except Exception as error:
            # Anything else is a bug in a handler. The stack is rolled back as after any other failure.
            log.error(
                "the handler of %s failed for %s because of a bug of the embedded cloud\n%s",
                resource.type,
                resource.logical_id,
                traceback.format_exc(),
            )
            raise ResourceError(f"InternalFailure: {bug_message(f'{type(error).__name__}: {error}')}") from None

    def drop(self, resource: Resource, *, on_create: bool = False, ignore_policy: bool = False) -> None:
        """Delete a resource, unless its DeletionPolicy retains it.

        `on_create` means that a failed creation is undone, so RetainExceptOnCreate does not retain the resource.
        `ignore_policy`: delete in any case. A resource that does not exist is skipped. Raises ResourceError.
        """
        if resource.physical is None or resource.status in ("DELETE_COMPLETE", "DELETE_SKIPPED"):
            return
        policy = resource.declaration.get("DeletionPolicy", "Delete")
        if not ignore_policy and (policy == "Retain" or (policy == "RetainExceptOnCreate" and not on_create)):
            self.note(resource, "DELETE_SKIPPED")
            return
        self.note(resource, "DELETE_IN_PROGRESS")
        made = resource.physical
        context = self.account.context(self.stack, resource.logical_id, {})
        try:
            self._call(resource, lambda: RESOURCE_TYPES[resource.type].delete(context, made, resource.properties))
        except ResourceError as error:
            self.note(resource, "DELETE_FAILED", str(error))
            raise
        self.note(resource, "DELETE_COMPLETE")


def _validate(name: str, resource_type: ResourceType, properties: Mapping[str, Any]) -> None:
    """Raise ResourceError if the resolved properties of a resource violate their type's schema."""
    found = schemas.check(resource_type.name, properties)
    if found:
        lines = "\n".join(f"#{''.join(f'/{part}' for part in each.path)}: {each.text}" for each in found)
        raise ResourceError(f"Properties validation failed for resource {name} with message:\n{lines}")


def _refuse_same_name(existing: Resource, resource_type: ResourceType, properties: Mapping[str, Any]) -> None:
    """Raise ResourceError if a replacement has the same custom name as the old resource, which still exists."""
    name = properties.get(resource_type.named_by)
    if (
        name is not None
        and existing.type == resource_type.name
        and existing.properties.get(resource_type.named_by) == name
    ):
        raise ResourceError(
            "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
            f"Rename {name} and update the stack again."
        )


def _without_unmodified_sizes(
    declaration: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the new properties, without a group's unchanged sizes if its UpdatePolicy ignores them."""
    policy = (declaration.get("UpdatePolicy") or {}).get("AutoScalingScheduledAction") or {}
    if str(policy.get("IgnoreUnmodifiedGroupSizeProperties", "")).lower() != "true":
        return new
    return {key: value for key, value in new.items() if key not in _SIZES or old.get(key) != value}

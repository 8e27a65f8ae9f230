"""What happens to a stack: created, updated, undone, deleted, each in a thread of its own."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError
from moto.core.exceptions import ServiceException

from localcloud.api.formation.account import Account
from localcloud.api.formation.errors import ResourceError
from localcloud.api.formation.graph import dependencies, order
from localcloud.api.formation.intrinsics import NO_VALUE
from localcloud.api.formation.kinds import Kind, Made
from localcloud.api.formation.rolling import replaces_instances, roll
from localcloud.api.formation.signals import Wait, creation_wait
from localcloud.api.formation.stacks import Resource, Stack, Target, now
from localcloud.api.formation.supported import KINDS

log = logging.getLogger("localcloud.api")

_SIZES = ("MinSize", "MaxSize", "DesiredCapacity")


class Operation:
    """Change one stack; at most one operation of a stack runs at a time."""

    def __init__(self, account: Account, stack: Stack) -> None:
        self.account = account
        self.stack = stack
        self._undo: list[Callable[[], None]] = []
        self._cleanup: list[Resource] = []
        self._failed: list[str] = []

    def start(self, run: Callable[[], None]) -> threading.Thread:
        """Run in the background; a failure of this code itself fails the stack instead of leaving it in progress."""

        def guarded() -> None:
            try:
                run()
            except Exception as error:
                log.error("operation on stack %s failed\n%s", self.stack.name, traceback.format_exc())
                status = self.stack.status.replace("_IN_PROGRESS", "_FAILED")
                self._status(status, f"InternalFailure: {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, name=f"stack-{self.stack.name}", daemon=True)
        thread.start()
        return thread

    def create(self) -> None:
        """Make all resources of the stack's target; undo it all where one fails."""
        target = self._target()
        self._advance(target, "CREATE")
        if not self._failed:
            self._set_outputs(target)
        if not self._failed:
            self._status("CREATE_COMPLETE")
            return
        failed = f"The following resource(s) failed to create: [{', '.join(self._failed)}]. "
        if self.stack.disable_rollback:
            self._status("CREATE_FAILED", failed)
            return
        self._status("ROLLBACK_IN_PROGRESS", f"{failed}Rollback requested by user.")
        left = self._delete_all(on_create=True)
        reason = f"The following resource(s) failed to delete: [{', '.join(left)}]. "
        self._status("ROLLBACK_FAILED" if left else "ROLLBACK_COMPLETE", reason if left else "")

    def update(self, former: Target) -> None:
        """Bring the stack to its target; go back to the former one where a resource fails."""
        target = self._target()
        self._advance(target, "UPDATE")
        if not self._failed:
            self._set_outputs(target)
        if self._failed:
            self._roll_back(former)
            return
        wanted = self.account.made_of(self.stack, target)
        removed = [resource for name, resource in self.stack.resources.items() if name not in wanted]
        self._status("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
        self._remove(removed, replaced=self._cleanup)
        self._status("UPDATE_COMPLETE")

    def delete(self, retained: list[str]) -> None:
        """Delete all resources but those to retain."""
        left = self._delete_all(retained=retained)
        if left:
            self._status("DELETE_FAILED", f"The following resource(s) failed to delete: [{', '.join(left)}]. ")
            return
        with self.account.condition:
            self.stack.deleted = now()
        self._status("DELETE_COMPLETE")

    def _roll_back(self, former: Target) -> None:
        failed = f"The following resource(s) failed to update: [{', '.join(self._failed)}]. "
        if self.stack.disable_rollback:
            self._status("UPDATE_FAILED", failed)
            return
        self._status("UPDATE_ROLLBACK_IN_PROGRESS", failed)
        with self.account.condition:
            self.stack.target = former
        stuck = []
        for undo in reversed(self._undo):
            try:
                undo()
            except ResourceError as error:
                stuck.append(str(error))
        if stuck:
            self._status("UPDATE_ROLLBACK_FAILED", "; ".join(stuck))
            return
        self._set_outputs(former)
        self._status("UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS")
        self._status("UPDATE_ROLLBACK_COMPLETE")

    def _target(self) -> Target:
        if self.stack.target is None:
            raise ResourceError("the stack has no template")
        return self.stack.target

    def _status(self, status: str, reason: str = "") -> None:
        with self.account.condition:
            self.stack.set_status(status, reason)
            self.account.condition.notify_all()

    def _note(self, resource: Resource, status: str, reason: str = "") -> None:
        with self.account.condition:
            self.stack.note(resource, status, reason)
            self.account.condition.notify_all()

    def _advance(self, target: Target, verb: str) -> None:
        """Bring every resource to its target, each after those that it needs; those that wait for signals together."""
        wanted = self.account.made_of(self.stack, target)
        needs = dependencies(wanted)
        pending = order(needs)
        done: set[str] = set()
        waiting: dict[str, Wait] = {}
        while (pending or waiting) and not self._failed:
            for name in [name for name in pending if needs[name] <= done]:
                pending.remove(name)
                try:
                    wait = self._bring(name, wanted[name], target)
                except ResourceError as error:
                    self._fail(name, str(error))
                    break
                if wait is None:
                    done.add(name)
                else:
                    waiting[name] = wait
            if not self._failed and not any(needs[name] <= done for name in pending):
                self._await(waiting, done)
        for name in waiting:
            if name not in self._failed:
                self._note(self.stack.resources[name], f"{verb}_FAILED", f"Resource {_noun(verb)} cancelled")

    def _fail(self, name: str, reason: str) -> None:
        self._failed.append(name)
        resource = self.stack.resources.get(name)
        if resource is not None:
            verb = "CREATE" if resource.status.startswith("CREATE") else "UPDATE"
            self._note(resource, f"{verb}_FAILED", reason)

    def _await(self, waiting: dict[str, Wait], done: set[str]) -> None:
        """Wait until a resource has its signals or cannot get them any more."""
        with self.account.condition:
            while waiting:
                for name, wait in list(waiting.items()):
                    verdict = wait.verdict(self.stack.resources[name].signals)
                    if verdict is None:
                        continue
                    del waiting[name]
                    if verdict:
                        self._fail(name, verdict)
                        return
                    self._note(self.stack.resources[name], "CREATE_COMPLETE")
                    done.add(name)
                    return
                if waiting:
                    self.account.condition.wait(min(wait.left_s() for wait in waiting.values()))

    def _bring(self, name: str, declaration: Mapping[str, Any], target: Target) -> Wait | None:
        """Create, update or replace one resource, or leave it; return what to wait for."""
        kind = KINDS[declaration["Type"]]
        properties = self._resolve(declaration, target)
        existing = self.stack.resources.get(name)
        if existing is None or existing.made is None:
            return self._make(name, kind, declaration, properties, target)
        old = existing.properties
        changed = {key for key in {*old, *properties} if old.get(key) != properties.get(key)}
        if not changed and existing.type == kind.type:
            existing.declaration = declaration
            return None
        if existing.type != kind.type or kind.update is None or changed & kind.replaced_by:
            self._note(existing, "UPDATE_IN_PROGRESS", "Requested update requires the creation of a new physical resource; hence creating one.")
            return self._make(name, kind, declaration, properties, target, replaces=existing)
        self._change(existing, kind, declaration, properties, target)
        return None

    def _resolve(self, declaration: Mapping[str, Any], target: Target) -> dict[str, Any]:
        try:
            resolved = self.account.scope(self.stack, target).resolve(dict(declaration.get("Properties") or {}))
        except ServiceException as error:
            raise ResourceError(error.message) from None
        return {} if resolved is NO_VALUE else dict(resolved)

    def _make(
        self,
        name: str,
        kind: Kind,
        declaration: Mapping[str, Any],
        properties: Mapping[str, Any],
        target: Target,
        replaces: Resource | None = None,
    ) -> Wait | None:
        resource = Resource(logical_id=name, type=kind.type, declaration=declaration, properties=properties)
        with self.account.condition:
            self.stack.resources[name] = resource
        self._undo.append(lambda: self._unmake(resource, replaces))
        verb = "UPDATE" if replaces else "CREATE"
        self._note(resource, f"{verb}_IN_PROGRESS")
        place = self.account.place(self.stack, name, target.tags)
        resource.made = self._call(resource, lambda: kind.create(place, properties))
        if replaces is not None:
            self._cleanup.append(replaces)
        wait = creation_wait(declaration)
        self._note(resource, f"{verb}_IN_PROGRESS", "Resource creation Initiated")
        if wait is None:
            self._note(resource, f"{verb}_COMPLETE")
        return wait

    def _unmake(self, resource: Resource, replaces: Resource | None) -> None:
        with self.account.condition:
            if replaces is not None:
                self.stack.resources[resource.logical_id] = replaces
            else:
                self.stack.resources.pop(resource.logical_id, None)
        self._drop(resource, on_create=True)

    def _change(
        self,
        resource: Resource,
        kind: Kind,
        declaration: Mapping[str, Any],
        properties: Mapping[str, Any],
        target: Target,
        *,
        undoing: bool = False,
    ) -> None:
        """Update a resource in place."""
        old, old_declaration, old_made = resource.properties, resource.declaration, resource.made
        if not undoing:
            self._undo.append(
                lambda: self._change(resource, kind, old_declaration, old, target, undoing=True)
            )
        with self.account.condition:
            resource.signals.clear()
        self._note(resource, "UPDATE_IN_PROGRESS")
        place = self.account.place(self.stack, resource.logical_id, target.tags)
        given = _without_unmodified_sizes(declaration, old, properties)
        update = kind.update

        def change() -> Made:
            if update is None or old_made is None:
                raise ResourceError(f"{kind.type} cannot be updated")
            return update(place, old_made, old, given)

        resource.made = self._call(resource, change)
        resource.properties, resource.declaration = properties, declaration
        if replaces_instances(declaration, old, properties):
            roll(self.account, self.stack, resource, wait=not undoing)
        self._note(resource, "UPDATE_COMPLETE")

    def _call(self, resource: Resource, handler: Callable[[], Any]) -> Any:
        """Call a handler; its failure becomes a reason that a person can read."""
        try:
            return handler()
        except ClientError as error:
            found = error.response["Error"]
            raise ResourceError(
                f'Resource handler returned message: "{found.get("Message", found["Code"])}" '
                f"(HandlerErrorCode: {found['Code']})"
            ) from None
        except ParamValidationError as error:
            raise ResourceError(f"Properties validation failed for resource {resource.logical_id}: {error}") from None
        except KeyError as error:
            raise ResourceError(
                f"Properties validation failed for resource {resource.logical_id} with message: "
                f"required key [{error.args[0]}] not found"
            ) from None

    def _set_outputs(self, target: Target) -> None:
        try:
            outputs = self._outputs(target)
        except ServiceException as error:
            self._failed.append(f"Outputs ({error.message})")
            return
        with self.account.condition:
            self.stack.outputs = outputs

    def _outputs(self, target: Target) -> list[dict[str, str]]:
        scope = self.account.scope(self.stack, target)
        found = []
        for key, declared in target.template.get("Outputs", {}).items():
            if "Condition" in declared and not scope.condition(declared["Condition"]):
                continue
            output = {"OutputKey": key, "OutputValue": str(scope.resolve(declared["Value"]))}
            if "Description" in declared:
                output["Description"] = declared["Description"]
            if "Export" in declared:
                output["ExportName"] = str(scope.resolve(declared["Export"]["Name"]))
            found.append(output)
        return found

    def _delete_all(self, *, on_create: bool = False, retained: list[str] | None = None) -> list[str]:
        """Delete the stack's resources; return the names of those that could not be."""
        left = []
        kept: set[str] = set()
        needs = dependencies({name: resource.declaration for name, resource in self.stack.resources.items()})
        for name in reversed(order(needs)):
            resource = self.stack.resources[name]
            if name in kept:
                # Something that stands on it is still there.
                kept |= needs[name]
                continue
            if name in (retained or ()):
                self._note(resource, "DELETE_SKIPPED")
                continue
            try:
                self._drop(resource, on_create=on_create)
            except ResourceError:
                left.append(name)
                kept |= needs[name]
        return left

    def _remove(self, removed: list[Resource], replaced: list[Resource]) -> None:
        """Delete what an update left behind; on AWS too this never fails the update."""
        by_name = {resource.logical_id: resource for resource in removed}
        needs = dependencies({name: resource.declaration for name, resource in by_name.items()})
        ordered = [by_name[name] for name in reversed(order(needs))]
        for resource in [*reversed(replaced), *ordered]:
            policy = resource.declaration.get("UpdateReplacePolicy" if resource in replaced else "DeletionPolicy")
            try:
                if policy == "Retain" and resource in replaced:
                    self._note(resource, "DELETE_SKIPPED")
                else:
                    self._drop(resource, ignore_policy=resource in replaced)
            except ResourceError as error:
                log.warning("stack %s: %s was left behind: %s", self.stack.name, resource.logical_id, error)
            if resource not in replaced:
                with self.account.condition:
                    self.stack.resources.pop(resource.logical_id, None)

    def _drop(self, resource: Resource, *, on_create: bool = False, ignore_policy: bool = False) -> None:
        """Delete one resource as its DeletionPolicy says.

        Raises ResourceError.
        """
        if resource.made is None or resource.status in ("DELETE_COMPLETE", "DELETE_SKIPPED"):
            return
        policy = resource.declaration.get("DeletionPolicy", "Delete")
        if not ignore_policy and (policy == "Retain" or (policy == "RetainExceptOnCreate" and not on_create)):
            self._note(resource, "DELETE_SKIPPED")
            return
        self._note(resource, "DELETE_IN_PROGRESS")
        made = resource.made
        place = self.account.place(self.stack, resource.logical_id, {})
        try:
            self._call(resource, lambda: KINDS[resource.type].delete(place, made, resource.properties))
        except ResourceError as error:
            self._note(resource, "DELETE_FAILED", str(error))
            raise
        self._note(resource, "DELETE_COMPLETE")


def _noun(verb: str) -> str:
    return {"CREATE": "creation", "UPDATE": "update"}[verb]


def _without_unmodified_sizes(
    declaration: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Leave a group's sizes alone where its UpdatePolicy says so and the template did not change them."""
    policy = (declaration.get("UpdatePolicy") or {}).get("AutoScalingScheduledAction") or {}
    if str(policy.get("IgnoreUnmodifiedGroupSizeProperties", "")).lower() != "true":
        return new
    return {key: value for key, value in new.items() if key not in _SIZES or old.get(key) != value}

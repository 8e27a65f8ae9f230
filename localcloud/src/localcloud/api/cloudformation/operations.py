"""Operations on a stack: create, update, roll back, delete. Each runs in a separate thread."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable

from moto.core.exceptions import ServiceException

from localcloud.api.cloudformation.account import Account
from localcloud.api.cloudformation.errors import ResourceError, ValidationError
from localcloud.api.cloudformation.intrinsics import dependencies, order
from localcloud.api.cloudformation.resources import ResourceChanger
from localcloud.api.cloudformation.signals import Wait
from localcloud.api.cloudformation.stacks import Resource, Stack, Target, now
from localcloud.api.error_replies import bug_message
from localcloud.api.loopback import acting_as

log = logging.getLogger("localcloud.api")


class Operation:
    """A change of one stack. A stack has at most one running operation.

    `create`, `update` and `delete` return when the change or its rollback is complete. The result is the stack's
    status; they raise no error for resources that fail.
    """

    def __init__(self, account: Account, stack: Stack) -> None:
        self.account = account
        self.stack = stack
        self._changer = ResourceChanger(account, stack)
        self._failed: list[str] = []
        self._unexplained = ""
        """Failure reason that belongs to no resource, for example an invalid output."""

    def start(self, run: Callable[[], None]) -> threading.Thread:
        """Run `run` in a background thread with the permissions of the stack's actor; return the thread.

        If `run` raises an exception, the exception is logged and the stack's operation fails.
        """

        def guarded() -> None:
            try:
                with acting_as(self.stack.actor):
                    run()
            except Exception as error:
                log.error(
                    "the operation on stack %s failed because of a bug of the embedded cloud\n%s",
                    self.stack.name,
                    traceback.format_exc(),
                )
                reason = f"InternalFailure: {bug_message(f'{type(error).__name__}: {error}')}"
                self._status(_stuck(self.stack.status), reason)

        thread = threading.Thread(target=guarded, name=f"stack-{self.stack.name}", daemon=True)
        thread.start()
        return thread

    def create(self) -> None:
        """Create all resources of the stack's target, and set the stack's outputs.

        After a failure, delete the resources again unless rollback is disabled.
        """
        target = self._target()
        self._advance(target, "CREATE")
        if not self._failed:
            self._set_outputs(target)
        if not self._failed:
            self._status("CREATE_COMPLETE")
            return
        failed = self._unexplained or f"The following resource(s) failed to create: [{', '.join(self._failed)}]. "
        if self.stack.disable_rollback:
            self._status("CREATE_FAILED", failed)
            return
        self._status("ROLLBACK_IN_PROGRESS", f"{failed}Rollback requested by user.")
        left = self._delete_all(on_create=True)
        reason = f"The following resource(s) failed to delete: [{', '.join(left)}]. "
        self._status("ROLLBACK_FAILED" if left else "ROLLBACK_COMPLETE", reason if left else "")

    def update(self, former: Target) -> None:
        """Update the stack to its target, set its outputs, and delete the removed and replaced resources.

        After a failure, roll back to `former`, the previous target, unless rollback is disabled.
        """
        target = self._target()
        self._advance(target, "UPDATE")
        if not self._failed:
            self._set_outputs(target)
        if self._failed:
            self._roll_back(former)
            return
        wanted = self.account.active_resources(self.stack, target)
        removed = [resource for name, resource in self.stack.resources.items() if name not in wanted]
        self._status("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
        self._remove(removed, replaced=self._changer.replaced)
        self._status("UPDATE_COMPLETE")

    def delete(self, retained: list[str]) -> None:
        """Delete the stack and its resources, except those with the logical ids in `retained`.

        If a deletion fails, the stack is DELETE_FAILED.
        """
        left = self._delete_all(retained=retained)
        if left:
            self._status("DELETE_FAILED", f"The following resource(s) failed to delete: [{', '.join(left)}]. ")
            return
        with self.account.condition:
            self.stack.deleted = now()
        self._status("DELETE_COMPLETE")

    def _roll_back(self, former: Target) -> None:
        """Restore `former`, the stack's target before a failed update. With rollback disabled, only set the status.

        If a change cannot be undone, the stack is UPDATE_ROLLBACK_FAILED.
        """
        failed = self._unexplained or f"The following resource(s) failed to update: [{', '.join(self._failed)}]. "
        if self.stack.disable_rollback:
            self._status("UPDATE_FAILED", failed)
            return
        self._status("UPDATE_ROLLBACK_IN_PROGRESS", failed)
        with self.account.condition:
            self.stack.target = former
        stuck = []
        for undo in reversed(self._changer.undo):
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
            raise ResourceError(f"the stack {self.stack.name} has no template")
        return self.stack.target

    def _status(self, status: str, reason: str = "") -> None:
        """Set the stack's status and notify waiting requests."""
        with self.account.condition:
            self.stack.set_status(status, reason)
            self.account.condition.notify_all()

    def _advance(self, target: Target, verb: str) -> None:
        """Create or update each resource after its dependencies, until one fails. `verb`: CREATE or UPDATE.

        Several resources may wait for signals at the same time. A failure cancels their waits. It is recorded in
        `_failed` and not raised.
        """
        wanted = self.account.active_resources(self.stack, target)
        needs = dependencies(wanted)
        pending = order(needs)
        done: set[str] = set()
        waiting: dict[str, Wait] = {}
        while (pending or waiting) and not self._failed:
            for name in [name for name in pending if needs[name] <= done]:
                pending.remove(name)
                try:
                    wait = self._changer.apply(name, wanted[name], target)
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
                self._changer.note(self.stack.resources[name], f"{verb}_FAILED", f"Resource {_noun(verb)} cancelled")

    def _fail(self, name: str, reason: str) -> None:
        """Record that a resource, or the part of the template with this name, has failed."""
        self._failed.append(name)
        resource = self.stack.resources.get(name)
        if resource is not None:
            verb = "CREATE" if resource.status.startswith("CREATE") else "UPDATE"
            self._changer.note(resource, f"{verb}_FAILED", reason)

    def _await(self, waiting: dict[str, Wait], done: set[str]) -> None:
        """Wait until one of the waiting resources is complete or has failed, and remove it from `waiting`.

        A complete resource is added to `done`.
        """
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
                    self._changer.note(self.stack.resources[name], "CREATE_COMPLETE")
                    done.add(name)
                    return
                if waiting:
                    self.account.condition.wait(min(wait.left_s() for wait in waiting.values()))

    def _set_outputs(self, target: Target) -> None:
        try:
            outputs = self._outputs(target)
        except ServiceException as error:
            self._failed.append("Outputs")
            self._unexplained = f"{error.message}. "
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
                output["ExportName"] = self._export(str(scope.resolve(declared["Export"]["Name"])))
            found.append(output)
        return found

    def _export(self, name: str) -> str:
        """Return the name of an export unchanged. Raises ValidationError if another stack already exports it."""
        _, owner = self.account.exports().get(name, ("", self.stack.stack_id))
        if owner != self.stack.stack_id:
            raise ValidationError(
                f"Export with name {name} is already exported by stack {self.account.get(owner).name}"
            )
        return name

    def _delete_all(self, *, on_create: bool = False, retained: list[str] | None = None) -> list[str]:
        """Delete the stack's resources except `retained`; return the names of resources whose deletion failed.

        The dependencies of a resource whose deletion failed are not deleted either. `on_create`: as for
        `ResourceChanger.drop`.
        """
        left = []
        kept: set[str] = set()
        needs = dependencies({name: resource.declaration for name, resource in self.stack.resources.items()})
        for name in reversed(order(needs)):
            resource = self.stack.resources[name]
            if name in kept:
                # A resource that depends on this one still exists.
                kept |= needs[name]
                continue
            if name in (retained or ()):
                self._changer.note(resource, "DELETE_SKIPPED")
                continue
            try:
                self._changer.drop(resource, on_create=on_create)
            except ResourceError:
                left.append(name)
                kept |= needs[name]
        return left

    def _remove(self, removed: list[Resource], replaced: list[Resource]) -> None:
        """Delete the resources that an update removed or replaced, unless their policies retain them.

        The stack then no longer has the removed resources. As on AWS, a failed deletion does not fail the update. It is
        only logged.
        """
        by_name = {resource.logical_id: resource for resource in removed}
        needs = dependencies({name: resource.declaration for name, resource in by_name.items()})
        ordered = [by_name[name] for name in reversed(order(needs))]
        for resource in [*reversed(replaced), *ordered]:
            policy = resource.declaration.get("UpdateReplacePolicy" if resource in replaced else "DeletionPolicy")
            try:
                if policy == "Retain" and resource in replaced:
                    self._changer.note(resource, "DELETE_SKIPPED")
                else:
                    self._changer.drop(resource, ignore_policy=resource in replaced)
            except ResourceError as error:
                log.warning(
                    "stack %s: the old resource %s could not be deleted and still exists: %s",
                    self.stack.name,
                    resource.logical_id,
                    error,
                )
            if resource not in replaced:
                with self.account.condition:
                    self.stack.resources.pop(resource.logical_id, None)


def _stuck(status: str) -> str:
    """Return the failure status for a stack whose operation crashed with this status."""
    first = status.split("_", 1)[0]
    return f"{first}_FAILED" if first in ("CREATE", "DELETE", "ROLLBACK") else "UPDATE_ROLLBACK_FAILED"


def _noun(verb: str) -> str:
    """Return the noun for CREATE or UPDATE in status reasons."""
    return {"CREATE": "creation", "UPDATE": "update"}[verb]

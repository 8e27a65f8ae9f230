"""The gate of the API: authorizes every outside request, and every call of a service on behalf of a caller.

Only the embedded cloud's own actions as AWS (bookkeeping, launches of Auto Scaling groups) are not checked. A request
that cannot be decided is denied, and the reason is logged.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from localcloud.api import error_replies
from localcloud.api.error_replies import Reply
from localcloud.api.permissions import known_condition_keys, refusals
from localcloud.api.permissions.caller import CALLER, CLOUDFORMATION, TRUSTED, Caller, Callers, UnknownCallerError
from localcloud.api.permissions.evaluator import Check, Decision, Evaluator, EvaluatorError
from localcloud.api.permissions.needs import Need, Needs
from localcloud.api.permissions.policies import Policies, condition_keys
from localcloud.api.permissions.request import Call, Signature, UndecidableError, UnknownOperationError, read, signature
from localcloud.api.permissions.resource_arns import Resources
from localcloud.snapshot import ACCOUNT, identity_signature

log = logging.getLogger("localcloud.api")

_OF_HELPER_SCRIPTS: Final = frozenset({"SignalResource", "DescribeStackResource"})


class Gate:
    """Authorizes requests."""

    def __init__(
        self,
        backend: Callable[[str], Any],
        stack_id: Callable[[str], str],
        lock: threading.RLock,
        evaluator: Evaluator,
    ) -> None:
        """Authorize against the state that `backend` returns for a service. Hold `lock` to read it.

        `stack_id` returns a stack's id by its name or by a change set's ARN, or "".
        """
        self._backend, self._lock, self._evaluator = backend, lock, evaluator
        self._callers = Callers(backend)
        self._policies = Policies(backend)
        self._resources = Resources(backend, stack_id)
        self._needs = Needs(self._resources, backend)

    def refusal(self, environ: dict[str, Any]) -> Reply | None:
        """Return an error reply if a request is denied. Otherwise store its caller in `environ` and return None.

        The cloud's own requests are not checked. A request whose permissions cannot be evaluated is denied.
        """
        if environ.get(TRUSTED):
            return None
        try:
            return self._refusal(environ)
        except UnknownCallerError as error:
            return refusals.credentials(environ, error.kind)
        except UnknownOperationError as error:
            return error_replies.reply(environ, "InvalidAction", str(error))
        except (EvaluatorError, UndecidableError) as error:
            service, _ = error_replies.service_of(environ)
            log.error("denied a call of %s, because its permissions cannot be evaluated: %s", service, error)
            return refusals.refused(environ, f"Denied, because the embedded cloud cannot decide: {error}")

    def _refusal(self, environ: dict[str, Any]) -> Reply | None:
        """Authorize a request, and store its caller in `environ`. Return an error reply if it is denied, or None.

        An unsigned request is denied. Requests of helper scripts have no caller. Raises UnknownCallerError,
        UnknownOperationError, EvaluatorError or UndecidableError.
        """
        service, _ = error_replies.service_of(environ)
        if str(environ.get("HTTP_AUTHORIZATION", "")).startswith("CFN_V1 "):
            text = self._outside_stack(environ, read(environ, "cloudformation"))
            return refusals.refused(environ, text) if text else None
        caller = environ.get(CALLER) or self._caller(environ)
        if caller is None:
            return refusals.credentials(environ, "none")
        environ[CALLER] = caller
        denial = self.denial(caller, read(environ, service))
        return refusals.denied(environ, caller, *denial) if denial else None

    def _outside_stack(self, environ: Mapping[str, Any], call: Call) -> str:
        """Return the reason to deny a helper script's call, or "" if it is allowed.

        CloudFormation's helper scripts sign `CFN_V1 DOCUMENT:SIGNATURE` with the identity of their instance. "If no
        credentials are specified, CloudFormation checks for stack membership and limits the scope of the call to the
        stack that the instance belongs to" (cfn-signal, in the user guide). The signature is the metadata service's,
        without its line breaks.
        """
        document, _, signed = str(environ["HTTP_AUTHORIZATION"]).removeprefix("CFN_V1 ").partition(":")
        try:
            text = base64.b64decode(document, validate=True)
            instance = str(json.loads(text)["instanceId"])
        except (binascii.Error, ValueError, KeyError, TypeError):
            text, instance = b"", ""
        if signed != identity_signature(text).replace("\n", ""):
            return f"The identity of instance {instance or 'unknown'} is not signed by EC2"
        if call.operation not in _OF_HELPER_SCRIPTS:
            return f"Instance {instance} is not authorized to perform: cloudformation:{call.operation}"
        tags = self._backend("ec2").tags.get(instance, {}) if instance else {}
        stack = str(call.params.get("StackName", ""))
        if stack in [tags.get(f"aws:cloudformation:stack-{key}") for key in ("name", "id")]:
            return ""
        return f"Instance {instance or 'unknown'} does not belong to stack {stack}"

    def _caller(self, environ: Mapping[str, Any]) -> Caller | None:
        given = signature(environ)
        return self.caller(given) if given else None

    def caller(self, given: Signature) -> Caller:
        """Return the caller that a signature's credentials belong to.

        Raises UnknownCallerError for unknown, inactive or expired credentials.
        """
        with self._lock:
            return self._callers.find(given)

    def denial(self, caller: Caller, call: Call) -> tuple[Need, Decision] | None:
        """Return the first denied requirement of a call, and its decision, or None if the call is allowed.

        Raises EvaluatorError or UndecidableError if a requirement cannot be decided.
        """
        with self._lock:
            needs = self._needs.of(call)
            keys = known_condition_keys.of(call, caller)
            checks = [self._check(caller, need, {**keys, **need.context}) for need in needs]
        for need in needs:
            log.info("  %s needs %s on %s", caller.arn, need.action, need.resource)
        decisions = zip(needs, self._evaluator.decide(checks), strict=True)
        return next(((need, decision) for need, decision in decisions if not decision.allowed), None)

    def denied_actions(self, role_name: str, instance_id: str, actions: tuple[str, ...]) -> list[str]:
        """Return the actions that are denied to an instance with a role; all of them for an unknown role.

        Actions of ssm are checked on the instance itself, other actions on the resource *. Raises EvaluatorError or
        UndecidableError.
        """
        with self._lock:
            role = next((each for each in self._backend("iam").roles.values() if each.name == role_name), None)
            if role is None:
                return list(actions)
            caller = self._callers.of_role(role, instance_id)
            own = self._resources.arn("ec2", "instance", instance_id)
            needs = [Need(action=each, resource=own if each.startswith("ssm:") else "*") for each in actions]
            nothing = Call(service="", operation="", params={}, address="")
            keys = known_condition_keys.of(nothing, caller)
            checks = [self._check(caller, need, keys) for need in needs]
        decisions = self._evaluator.decide(checks)
        return [need.action for need, decision in zip(needs, decisions, strict=True) if not decision.allowed]

    def assumed_by_cloudformation(self, role_arn: str) -> Caller | None:
        """Return CloudFormation's session of a role, or None if the role is unknown or does not trust CloudFormation.

        Raises EvaluatorError.
        """
        with self._lock:
            trust = self._policies.trust(role_arn)
            role = next((each for each in self._backend("iam").roles.values() if each.arn == role_arn), None)
        if trust is None or role is None:
            return None
        check = Check(
            principal=CLOUDFORMATION, action="sts:AssumeRole", resource=role_arn, account=ACCOUNT, policy=trust
        )
        (decision,) = self._evaluator.decide([check])
        return self._callers.of_role(role, "AWSCloudFormation") if decision.allowed else None

    def _check(self, caller: Caller, need: Need, keys: known_condition_keys.Context) -> Check:
        """Return the evaluator's question about one requirement. `keys` are its condition keys.

        Raises UndecidableError.
        """
        policies = self._policies
        check = Check(
            principal=caller.arn,
            action=need.action,
            resource=_literal(need.resource),
            account=ACCOUNT,
            context=keys,
            identity=policies.identity(caller),
            boundary=policies.boundary(caller),
            session=caller.session_policy,
            policy=policies.resource(need.action, need.resource),
        )
        _require_known_keys(check)
        return check


def _require_known_keys(check: Check) -> None:
    """Raise UndecidableError if a condition uses an unsupported key. Its value would silently be missing."""
    attached = [*check.identity, *(check.boundary or ())]
    documents = [(str(each["name"]), each["policy"]) for each in attached]
    documents += [("session policy", check.session), (f"the policy of {check.resource}", check.policy)]
    for name, document in documents:
        for statement, key in condition_keys(document, check.action):
            if not known_condition_keys.is_known(key):
                raise UndecidableError(
                    f"statement {statement} of {name} has a condition on {key}, a key that the embedded cloud does not "
                    "support; remove the condition, or test this policy on AWS"
                )


def _literal(resource: str) -> str:
    """Return an ARN with replaced wildcards, because the evaluator would treat a literal * in a name as a pattern."""
    return (
        resource
        if resource == "*"
        else resource.replace("*", "\N{ASTERISK OPERATOR}").replace("?", "\N{DOUBLE QUESTION MARK}")
    )

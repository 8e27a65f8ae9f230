"""Eventual consistency: new instances, roles and instance profiles are not found for some seconds.

EC2 developer guide, "Eventual consistency in the Amazon EC2 API" (`InvalidInstanceID.NotFound`); IAM user guide,
"Changes that I make are not always immediately visible"; EC2 user guide, "IAM roles for Amazon EC2" (a profile that EC2
does not know yet). CloudFormation waits until these resources have stabilized.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.iam.exceptions import NotFoundException

from localcloud.api import eventual_consistency
from localcloud.api.ec2 import launch_templates
from localcloud.api.monkeypatch import call_after, replace
from localcloud.api_faults.throttling import Draws

PROBABILITY: Final = 0.6
"""Probability that a new object is hidden at all."""
MAX_DELAY_S: Final = 5.0
"""AWS documents no maximum. SDKs and tools usually retry for some seconds to minutes."""


class Propagation:
    """Hides new instances, roles and instance profiles of the backends that it is attached to."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def attach(self, ec2: Any, iam: Any) -> None:
        """Hide most new instances, roles and instance profiles of these backends for 0.5 to 5 s.

        Also reject launches with a hidden instance profile. A reset of moto ends this.
        """
        call_after(ec2, "run_instances", lambda reservation: self._delay("instance", reservation.instances))
        call_after(iam, "create_role", lambda role: self._delay("role", [role]))
        call_after(iam, "create_instance_profile", lambda profile: self._delay("instance profile", [profile]))
        _hide_instances(ec2)
        _hide_from_iam(iam, "get_role", "list_roles", "The role with name {} cannot be found.")
        _hide_from_iam(iam, "get_instance_profile", "get_instance_profiles", "Instance Profile {} cannot be found.")
        _refuse_new_profiles(ec2)

    def _delay(self, kind: str, things: Iterable[Any]) -> None:
        for thing in things:
            draw = self._draws.draw(f"propagation of an {kind}")
            eventual_consistency.hide(thing, draw.uniform(0.5, MAX_DELAY_S) if draw.random() < PROBABILITY else 0.0)


def _looks_back(action: str) -> bool:
    """Return whether an EC2 action may refer to existing instances."""
    return action != "RunInstances"


def _reads(action: str) -> bool:
    """Return whether an IAM action only reads. Writes always see previous writes."""
    return action.startswith(("Get", "List"))


def _hide_instances(ec2: Any) -> None:
    original = ec2.all_reservations

    def all_reservations(filters: Any = None) -> list[Any]:
        found = original(filters)  # These are copies, but they share the instance lists of the original reservations.
        for reservation in found:
            reservation.instances = [
                each for each in reservation.instances if not eventual_consistency.is_hidden(each, "ec2", _looks_back)
            ]
        return [reservation for reservation in found if reservation.instances]

    replace(ec2, "all_reservations", all_reservations)


def _hide_from_iam(iam: Any, get: str, get_all: str, missing: str) -> None:
    """Hide new objects from two read methods of IAM's backend, whose names are `get` and `get_all`.

    `missing` is the error message for a hidden object.
    """
    original, original_list = getattr(iam, get), getattr(iam, get_all)

    def get_one(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        if eventual_consistency.is_hidden(found, "iam", _reads):
            raise NotFoundException(missing.format(found.name))
        return found

    def list_all(*args: Any, **kwargs: Any) -> Any:
        found = original_list(*args, **kwargs)
        things, *marker = found if isinstance(found, tuple) else (found,)
        seen = [thing for thing in things if not eventual_consistency.is_hidden(thing, "iam", _reads)]
        return (seen, *marker) if marker else seen

    replace(iam, get, get_one)
    replace(iam, get_all, list_all)


def _refuse_new_profiles(ec2: Any) -> None:
    """Reject launches if the instance profile or its role is hidden from EC2."""
    original = ec2.associate_iam_instance_profile

    def associate_iam_instance_profile(
        instance_id: str, iam_instance_profile_name: str | None = None, iam_instance_profile_arn: str | None = None
    ) -> Any:
        profile = {"Name": iam_instance_profile_name, "Arn": iam_instance_profile_arn}
        for code, message in launch_templates.unknown_profile(ec2, {"IamInstanceProfile": profile}):
            raise EC2ClientError(code, message)
        return original(instance_id, iam_instance_profile_name, iam_instance_profile_arn)

    replace(ec2, "associate_iam_instance_profile", associate_iam_instance_profile)


def is_stable(iam: Any, resource_type: str, physical_id: str) -> bool:
    """Return whether a CloudFormation resource has propagated. True for types that are not hidden, and unknown ids."""
    things = {
        "AWS::IAM::Role": (role for role in iam.roles.values() if role.name == physical_id),
        "AWS::IAM::InstanceProfile": (each for each in iam.instance_profiles.values() if each.name == physical_id),
    }
    return not any(eventual_consistency.is_propagating(each) for each in things.get(resource_type, ()))

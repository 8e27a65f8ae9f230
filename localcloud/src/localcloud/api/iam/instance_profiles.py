"""Instance profiles: a role that is not in one cannot be removed from it; moto breaks off with an internal error."""

from __future__ import annotations

from typing import Any

from moto.iam import models
from moto.iam.exceptions import NotFoundException

from localcloud.api.monkeypatch import replace


def apply() -> None:
    """Correct moto."""
    original = models.IAMBackend.remove_role_from_instance_profile

    def remove_role_from_instance_profile(self: Any, profile_name: str, role_name: str) -> None:
        profile = self.get_instance_profile(profile_name)
        if role_name not in [role.name for role in profile.roles]:
            raise NotFoundException(f"The role with name {role_name} cannot be found.")
        original(self, profile_name, role_name)

    replace(models.IAMBackend, "remove_role_from_instance_profile", remove_role_from_instance_profile)

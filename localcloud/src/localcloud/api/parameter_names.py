"""What the parameter store refuses of names: with a slash in it, a name begins with one."""

from __future__ import annotations

from typing import Any

from moto.ssm.exceptions import ValidationException
from moto.ssm.responses import SimpleSystemManagerResponse

from localcloud.api.monkeypatch import check_first


def apply() -> None:
    """Correct moto."""
    check_first(SimpleSystemManagerResponse, "put_parameter", _check)


def _check(responses: Any) -> None:
    name = str(responses._get_param("Name"))
    if "/" in name and not name.startswith("/"):
        raise ValidationException("Parameter name must be a fully qualified name.")

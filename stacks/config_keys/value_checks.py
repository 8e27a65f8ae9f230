"""Checks of single configuration values, and the error with the key's name."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final

# Directories that a node needs to boot, for logins and to be part of the cluster.
_OF_THE_NODE: Final = tuple(
    f"/{name}"
    for name in (
        *("bin", "boot", "dev", "etc", "home", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "tmp", "usr"),
        *("var", "opt/aws", "opt/deepcdk", "opt/deeplearning"),
    )
)
_PARENTS: Final = ("/mnt", "/opt")
_MAX_MOUNT: Final = 255  # user data and the agent's configuration, which AWS limits, repeat the path

# Addresses that SNS and AWS Budgets accept: RFC 5321 without quoted names.
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
EMAIL: Final = rf"(?=[^@]{{1,64}}@.{{1,254}}$){_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+[A-Za-z]{{2,63}}"
# S3's rules: no two consecutive dots, and not formatted like an IP address.
BUCKET: Final = r"(?!(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?:/|$))[a-z0-9](?:[a-z0-9-]|\.(?!\.)){1,61}[a-z0-9]"


class ConfigError(ValueError):
    """Report an invalid value in the cluster's configuration, or an invalid cdk.json.

    Carries `key` (as in cdk.json), `value` and `rule`. If the whole file is invalid, `key` is "", and `value` is the
    file's path or None.
    """

    def __init__(self, key: str, value: object, rule: str) -> None:
        self.key, self.value, self.rule = key, value, rule
        place = f"cluster.{key}" if key else "cdk.json" if value is None else str(value)
        super().__init__(f"{place} = {shown(value)}: {rule}" if key and value is not None else f"{place}: {rule}")


def shown(value: object) -> str:
    """Return a value as text for a message, with lists and true and false as in cdk.json."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value)


def require_match(keys: object, key: str, pattern: str, rule: str) -> None:
    """Raise ConfigError unless the attribute `key` of `keys` matches a pattern of ASCII characters.

    If the attribute is a list, each text in it must match. The pattern must match the whole text. `rule` completes the
    message "must be ...".
    """
    value = getattr(keys, key)
    for text in (value,) if isinstance(value, str) else value:
        if not re.fullmatch(pattern, text, flags=re.ASCII):
            raise ConfigError(key, text, f"must be {rule}")


def require_range(keys: object, key: str, low: float, high: float, why: str = "") -> None:
    """Raise ConfigError unless the attribute `key` of `keys`, a number, is within a range, limits included.

    `why` is a remark about the upper limit, for the message.
    """
    value = getattr(keys, key)
    if not low <= value <= high:
        raise ConfigError(key, value, f"must be {low} to {high}" + (f" ({why})" if why else ""))


def require_choice(keys: object, key: str, *choices: str | int) -> None:
    """Raise ConfigError unless the attribute `key` of `keys`, a text or a number, is one of the choices."""
    value = getattr(keys, key)
    if value not in choices:
        raise ConfigError(key, value, f"must be one of {', '.join(map(str, choices))}")


def require_mount_point(keys: object, key: str) -> None:
    """Raise ConfigError unless the attribute `key` of `keys` can be a mount point.

    It must be an absolute path of at most 255 letters, digits, `-`, `_` and `/`, and hide no files of the node.
    """
    require_match(keys, key, r"(?:/[A-Za-z0-9][A-Za-z0-9_-]*)+", "an absolute path of letters, digits, - and _")
    value = getattr(keys, key)
    if len(value) > _MAX_MOUNT:
        raise ConfigError(key, value, f"must have at most {_MAX_MOUNT} characters")
    for own in _OF_THE_NODE:
        if value == own or value.startswith(f"{own}/"):
            raise ConfigError(key, value, f"must be outside of {own}, a system directory; use one like /mnt/NAME")
    if value in _PARENTS:
        raise ConfigError(key, value, f"would hide the directory's other contents; use one like {value}/NAME")


def parse_network(key: str, value: str) -> ipaddress.IPv4Network:
    """Parse an IPv4 network in its canonical form. Raises ConfigError for the setting `key` for any other text."""
    try:
        found = ipaddress.IPv4Network(value)
    except ValueError as error:
        example = _meant(value, "10.0.0.0/16" if key == "vpc_cidr" else "198.18.0.7/32")
        raise ConfigError(key, value, f"must be an IPv4 network such as {example} ({error})") from None
    if str(found) != value:
        raise ConfigError(key, value, f"must be written as {found}")
    return found


def _meant(value: str, example: str) -> str:
    """Return the network to suggest in a message: `value` without its host bits, or `example` if it is invalid."""
    try:
        return str(ipaddress.IPv4Network(value, strict=False))
    except ValueError:
        return example


def coerce(key: str, value: Any, kind: str) -> Any:
    """Convert a value from `cdk.json`, or its text from a command line, to the type of its field.

    `kind` is the field's type as text: str, bool, int, float or tuple[str, ...]. A list can be a text with commas.
    Raises ConfigError.
    """
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        raise ConfigError(key, value, "must be true or false")
    if kind == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value):
            return int(value)
        raise ConfigError(key, value, "must be a whole number")
    if kind == "float":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?", value):
            return float(value)
        raise ConfigError(key, value, "must be a number")
    if kind == "tuple[str, ...]":
        if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            return tuple(value)
        if isinstance(value, str):
            return tuple(each.strip() for each in value.split(",") if each.strip())
        raise ConfigError(key, value, "must be a list of strings")
    raise ConfigError(key, value, "must be a string")

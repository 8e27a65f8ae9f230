"""Environment variables for a run's ranks: plain variables with values, and secrets by name. Values are never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from cluster.errors import UsageError
from cluster.programs.entry_flag import MAX_WORD_BYTES
from cluster.terminal.paths import expanded

OURS: Final = re.compile(
    "HOROVOD_(RANK|SIZE|(LOCAL|CROSS)_(RANK|SIZE)|HOSTNAME|CONTROLLER|CPU_OPERATIONS|GLOO_RENDEZVOUS_.*|ELASTIC)|DEEPCDK_.*"
)
"""Variables that the launcher itself sets. With other values the ranks would not find each other."""
MAX_SECRETS_BYTES: Final = 1 << 20


def parse_environment(given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse --env NAME=VALUE into pairs. If a name is repeated, the last value counts.

    Raises UsageError for an invalid pair; its message omits the value.
    """
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            shown = name if _is_name(name) else None  # other text may be a value
            rule = f"must be NAME=VALUE; for a secret in your environment give --secret {shown or 'NAME'}"
            raise UsageError("--env", shown, rule)
        _check("--env", name, value)
        pairs[name] = value
    return tuple(pairs.items())


def read_secrets(given: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of secrets by name, from the environment (--secret NAME) or a file (--secret NAME=@FILE).

    `environ` has the variables of this process. The final newline of a file is removed. Raises UsageError for an
    invalid secret; its message omits the value.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, source = text.partition("=")
        if equals and not source.startswith("@"):
            rule = (
                "must be NAME or NAME=@FILE, because a value on the command line is visible in `ps` and in the "
                "shell's history"
            )
            raise UsageError("--secret", name, rule)
        value = _read_file(name, expanded(source[1:])) if equals else environ.get(name)
        if value is None:
            raise UsageError("--secret", name, "is not in your environment; export it, or give NAME=@FILE")
        _check("--secret", name, value)
        found[name] = value
    if sum(map(len, found.values())) > MAX_SECRETS_BYTES:
        raise UsageError("--secret", None, f"all secrets together must have at most {MAX_SECRETS_BYTES:,} characters")
    return found


def check_secrets(run_id: str, wanted: Iterable[str], given: Mapping[str, str]) -> None:
    """Raise UsageError unless a resumed run gets exactly the secrets that it had before. Only their names are compared.

    `wanted` are the names of the run's secrets. `given` maps the names to the values that are given now.
    """
    if absent := sorted(set(wanted) - set(given)):
        raise UsageError(
            "--secret",
            None,
            f"run {run_id} needs {', '.join(absent)}; give each again, because secrets are not kept after a run",
        )
    if unknown := sorted(set(given) - set(wanted)):
        raise UsageError("--secret", unknown[0], f"is not a secret of run {run_id}; leave it out")


def _read_file(name: str, path: Path) -> str:
    """Return a secret's value from a file, without the final newline. Raises UsageError if it is unreadable or not
    UTF-8.
    """
    try:
        text = path.read_bytes().decode()  # in text mode, Python would translate line ends
        return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    except OSError as error:
        raise UsageError("--secret", f"{name}=@{path}", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError("--secret", f"{name}=@{path}", "is not UTF-8 text; save it as UTF-8") from None


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) is not None


def _check(flag: str, name: str, value: str) -> None:
    """Raise UsageError, which names `flag`, for an invalid variable, or for one that the launcher itself sets.

    The message omits the value.
    """
    if not _is_name(name):
        raise UsageError(flag, name, "must start with the name of a variable: letters, digits and _, no digit first")
    if OURS.fullmatch(name):
        raise UsageError(flag, name, "is set by the launcher; leave it out")
    if "\0" in value:
        raise UsageError(flag, name, "has a value with a NUL character, which no program can receive; remove it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(flag, name, "has a value that is not UTF-8; encode it as UTF-8") from None
    if (size := len(os.fsencode(f"{name}={value}"))) > MAX_WORD_BYTES:
        rule = f"has {size:,} bytes with its value, but Linux allows at most {MAX_WORD_BYTES:,}; pass a file instead"
        raise UsageError(flag, name, rule)

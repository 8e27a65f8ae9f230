"""Replace what names an account, a machine or a moment in a text, so that answers can be compared and sent on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PATTERNS: Final = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b([a-z]{1,10})-(?:[0-9a-f]{17}|[0-9a-f]{8})\b"), r"\1-ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2})?\b"), "ADDRESS"),
    (re.compile(r"(?<![\w:])(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}(?:/\d{1,3})?(?!\w)", re.IGNORECASE), "ADDRESS"),
    (re.compile(r"\bip-\d+-\d+-\d+-\d+\b"), "ip-ADDRESS"),
    (re.compile(r"\b(?:AKIA|ASIA|AIDA|AROA)[A-Z0-9]{12,}\b"), "KEY"),
    (
        re.compile(r"\barn:(aws[a-z-]*):(iam|sts)::(\w+):(user|assumed-role|federated-user)/[\w+=,.@/-]+"),
        r"arn:\1:\2::\3:\4/CALLER",
    ),
    (re.compile(r"\b\d{12}\b"), "ACCOUNT"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"), "EMAIL"),
)


def redact(text: str, names: Mapping[str, str]) -> str:
    """Return a text with ids, addresses, times, accounts and the given names replaced by words in capitals.

    `names`: what to write in place of each name, longest names first: `{"deepcdk-trial-ab12": "CLUSTER"}`.
    """
    for name in sorted(names, key=len, reverse=True):
        if name:
            text = text.replace(name, names[name])
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text

"""Strategies for malicious documents, lines and files."""

from __future__ import annotations

import copy
import json
import os
from typing import Any, Final

from hypothesis import strategies as st

from tests.words import WORDS

EXAMPLES: Final = int(os.environ.get("DEEPCDK_EXAMPLES", "60"))
"""Examples per test: few in each test run, and as many as fit into an hour with `make fuzz`."""
RAW: Final = "\x00raw:"
"""Prefix of a text that is inserted unquoted into the JSON, as no JSON library would write it."""

_TEXTS: Final = (
    "", ".", "..", "./..", "../../../etc/passwd", "/etc/shadow", "-rf", "--into=/", "a\x1b[2J", "\x1b]0;x\x07",
    "\x9b2J", "$(touch INJECTED)", "`touch INJECTED`", "'; touch INJECTED; '", "a\nb", "a\rb", "\u202e", "{x!r}",
    "%s%n", "[/]", "[red]", "<script>", "NaN", "1e999", "deeplearning-worker1", "i-00000001",
    "10.0.64.5\\'$(touch INJECTED)\\'", "live", "failed", "queued", "one", "x" * 5_000,
)  # fmt: skip
_RAWS: Final = (
    "9" * 5000, "-" + "9" * 400, "9" * 19, "1e400", "-1e400", "NaN", "Infinity", "1" + "0" * 308 + ".5", "[" * 2_000,
    '{"a":' * 2_000, '"\\ud800"', "0.1e-400", "tru", '"', "{,}",
)  # fmt: skip
SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((0, -1, 1, 2**31, 2**63, -(2**63), 10**17, 10**18, -0.0, 1e308, -1e308, 5e-324)),
    st.integers(),
    st.floats(),
    st.sampled_from(_TEXTS),
    st.sampled_from(_RAWS).map(lambda text: RAW + text),
    WORDS,
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(_TEXTS) | WORDS, below, max_size=3),
    max_leaves=6,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value within a document."""
    below: Any = ()
    if isinstance(document, dict):
        below = document.items()
    elif isinstance(document, list):
        below = enumerate(document)
    return [path, *(place for key, value in below for place in places(value, (*path, key)))]


@st.composite
def spoilt(draw: st.DrawFn, document: Any) -> Any:
    """Return a document with some values replaced, removed or added."""
    made = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(made)))
        if not path:
            made = draw(VALUES) if draw(st.integers(0, 9)) == 0 else made
            continue
        part = made
        for key in path[:-1]:
            part = part[key]
        action = draw(st.sampled_from(("put", "put", "put", "remove", "add")))
        if action == "put":
            part[path[-1]] = draw(VALUES)
        elif action == "remove":
            del part[path[-1]]
        elif isinstance(part, dict):
            part[draw(st.sampled_from(_TEXTS))] = draw(VALUES)
        else:
            part.append(draw(VALUES))
    return made


def encoded(document: Any) -> str:
    """Return JSON; strings that start with RAW are inserted unquoted."""
    if isinstance(document, str) and document.startswith(RAW):
        return document.removeprefix(RAW)
    if isinstance(document, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {encoded(value)}" for key, value in document.items()) + "}"
    if isinstance(document, list | tuple):
        return "[" + ", ".join(map(encoded, document)) + "]"
    return json.dumps(document)


def json_of(document: Any) -> st.SearchStrategy[str]:
    """Return the JSON of a spoilt document."""
    return spoilt(document).map(encoded)


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with some parts cut, repeated, replaced or inserted."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from((0, 1, 2, 8, 100, 512, 5000))))
        new = draw(
            st.one_of(
                st.just(b""),
                st.binary(max_size=20),
                st.sampled_from((b"\0" * 600, b"\n", b"\r", b"\xff" * 12, b"9" * 5000, b"\x1b]0;x\x07", b"{" * 2000)),
                st.just(data[start:end] * 3),
                st.sampled_from(_TEXTS).map(os.fsencode),
            )
        )
        data = data[:start] + new + data[end:]
    return data


def repeated(sound: str, size: int = 1 << 20) -> st.SearchStrategy[str]:
    """Return about `size` characters that repeat a few parts of a valid text, to find parsers that are not linear."""
    parts = st.builds(
        lambda start, length: sound[start : start + length], st.integers(0, len(sound)), st.integers(1, 60)
    )
    return st.lists(parts, min_size=1, max_size=3).map("".join).map(lambda text: text * (size // (len(text) or 1)))


def texts_like(sound: str) -> st.SearchStrategy[str]:
    """Return a text similar to a valid one; invalid UTF-8 in it is replaced, as readers of streams do."""
    return mutated(sound.encode()).map(lambda data: data.decode("utf-8", errors="replace"))

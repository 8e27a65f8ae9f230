"""Hypothesis strategies for command-line words: any bytes except NUL. Invalid UTF-8 becomes lone surrogates."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import strategies as st

NASTIEST: Final = (
    "", " ", "a  b", "-rf", "--json", "--", "=", "$(id)", "`id`", "${HOME}", "'", '"', "\\", "a'b\"c\\", "two\nlines\n",
    "a\r\nb\r", "\t", "*", "~", "../x", "%s%%", "ünï ☃ 𝒳", "\udcff not UTF-8", "\x7f\x1b[31m", "; true #", "&&", "!!",
)  # fmt: skip


class _Long(str):
    __slots__ = ()

    def __repr__(self) -> str:
        """Keep the representation short in the output of a failed test."""
        return f"<{len(self):,} characters>"


LONG: Final[str] = _Long("ü $(id) '\"\n" * 9000)
"""More than 100 kB, but less than Linux's limit of 128 KiB per argument."""

WORDS: Final = st.one_of(
    st.sampled_from(NASTIEST),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60),
    st.binary(max_size=30).map(lambda data: os.fsdecode(data.replace(b"\0", b""))),
)
FILE_NAMES: Final = WORDS.map(lambda word: os.fsdecode(os.fsencode(word.replace("/", "|"))[:255])).filter(
    lambda name: name not in ("", ".", "..")
)
"""Names of files or directories."""

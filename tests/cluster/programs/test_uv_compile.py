"""Facts about asking uv: what it is told, and what its words mean."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent.spec.kinds import RuntimeKind
from cluster.programs.program_packages import Wanted
from cluster.programs.uv_compile import (
    Answer,
    UnresolvedHereError,
    UvError,
    ask,
    check_answer,
    uv_environment,
    without_passwords,
)

KIND = RuntimeKind(processor="x86_64", python="3.12")


def refused(words: str) -> Answer:
    return Answer(fits=False, words=words)


def test_pips_variables_name_places_of_packages_unless_uvs_own_do() -> None:
    pips = {"PIP_INDEX_URL": "https://a", "PIP_EXTRA_INDEX_URL": "https://b https://c", "PIP_FIND_LINKS": "/x /y"}
    found = uv_environment({**pips, "UV_DEFAULT_INDEX": "https://own"}, "/z")
    assert found["UV_DEFAULT_INDEX"] == "https://own"
    assert (found["UV_INDEX"], found["UV_FIND_LINKS"]) == ("https://b https://c", "/x,/y,/z")


def test_what_only_this_machine_cannot_do_is_told_apart_from_what_no_environment_can_have() -> None:
    with pytest.raises(UnresolvedHereError, match=r"no package index: https://i/simple/toy/: refused"):
        check_answer(refused("error: Failed to fetch: `https://i/simple/toy/`\n  cause: refused"), 2)
    with pytest.raises(UnresolvedHereError, match=r"^https://host/a answers 404 Not Found\n"):
        check_answer(refused("  cause: HTTP status client error (404 Not Found) for url (https://host/a)"), 2)
    for words in ("error: Failed to build `bad==1.0`\n  cause: no compiler", "  cause: Git operation failed\n denied"):
        with pytest.raises(UnresolvedHereError, match=r"no compiler|denied"):
            check_answer(refused(words), 1)
    check_answer(refused("error: No solution found when resolving dependencies"), 1)
    with pytest.raises(UvError, match="uv ended with status -9 and said nothing"):
        check_answer(refused(""), -9)


def test_no_password_of_a_url_is_told() -> None:
    words = "cannot read git+https://ann:s3cret@host/x and http://host/y, nor https://ann@host:8443/z"
    assert without_passwords(f"{words}\n") == words.replace("s3cret", "****")


def test_without_uv_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(UvError, match="uv, which resolves the requirements of programs, is not installed") as found:
        ask(Wanted(directory=tmp_path, requirements="", modules=frozenset()), KIND, os.environ)
    assert "make setup" in found.value.remedy

"""Calling uv: its arguments and the meaning of its messages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent.spec.node_kinds import RuntimeKind
from cluster.programs import uv_compile
from cluster.programs.python_environment import Wanted
from cluster.programs.secret_detection import masked
from cluster.programs.uv_compile import (
    Answer,
    UnresolvedHereError,
    UvError,
    ask,
    check_answer,
    uv_environment,
    write_stand_in,
)
from tests.cluster.conftest import Proxy

KIND = RuntimeKind(processor="x86_64", python="3.12")


def refused(words: str) -> Answer:
    return Answer(fits=False, words=words)


def test_variables_of_pip_apply_unless_uv_variables_are_set() -> None:
    pips = {"PIP_INDEX_URL": "https://a", "PIP_EXTRA_INDEX_URL": "https://b https://c", "PIP_FIND_LINKS": "/x /y"}
    found = uv_environment({**pips, "UV_DEFAULT_INDEX": "https://own"}, "/z")
    assert found["UV_DEFAULT_INDEX"] == "https://own"
    assert (found["UV_INDEX"], found["UV_FIND_LINKS"]) == ("https://b https://c", "/x,/y,/z")


def test_problems_of_this_machine_differ_from_unsolvable_requirements() -> None:
    with pytest.raises(UnresolvedHereError, match=r"cannot download from https://i/toy/: refused"):
        check_answer(refused("error: Failed to fetch: `https://i/toy/`\n  cause: refused"), 2)
    with pytest.raises(UnresolvedHereError, match=r"^https://host/a returned 404 Not Found\n"):
        check_answer(refused("  cause: HTTP status client error (404 Not Found) for url (https://host/a)"), 2)
    for words in ("error: Failed to build `bad==1.0`\n  cause: no compiler", "  cause: Git operation failed\n denied"):
        with pytest.raises(UnresolvedHereError, match=r"no compiler|denied"):
            check_answer(refused(words), 1)
    check_answer(refused("error: No solution found when resolving dependencies"), 1)
    for status, what in ((-9, "uv was ended by signal 9"), (3, "uv exited with status 3 and no message")):
        with pytest.raises(UvError, match=what):
            check_answer(refused(""), status)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("http://host/y https://s3cret@host:8443/packages", "http://host/y https://****@host:8443/packages"),
        ("https://s3cret:x-oauth-basic@github.com/a.git", "https://****@github.com/a.git"),
        ("git+ssh://git@host/a.git@v1 ssh://git:s3cret@host", "git+ssh://git@host/a.git@v1 ssh://git:****@host"),
        ("https://host/a.whl?X-Amz-Signature=s3cret&v=1#x", "https://host/a.whl?X-Amz-Signature=****&v=1#x"),
        ("git+ssh://git:s3@cret@host/x@1", "git+ssh://git:****@host/x@1"),
        ("https://host?sort_key=name&monkey=1&author=x@y", "https://host?sort_key=name&monkey=1&author=x@y"),
        ("user@host: a/b@c, x==1 @ y", "user@host: a/b@c, x==1 @ y"),
        ("https://ann:s3#cret@host/x", "https://****@host/x"),
        ("HTTPS://ann:s3?cret@host/x", "HTTPS://****@host/x"),
        ("https://ann:s3@c.re/t@pypi.example.com/x", "https://****@pypi.example.com/x"),
        ("https://ann:123456/cret@host", "https://****@host"),
        ("ssh://git:s3/cret@host/x, redis://:s3#cret@host", "ssh://git:****@host/x, redis://:****@host"),
        ("https://ann:s3cret@a.b/x,https://ann:s3cret@c.d/x", "https://****@a.b/x,https://****@c.d/x"),
        ("git+https://ann:s3cret@github.com/a/b.git@main", "git+https://****@github.com/a/b.git@main"),
        (
            "git+https://host:8443/a.git@v1 git+ssh://git@h:22/a@v1",
            "git+https://host:8443/a.git@v1 git+ssh://git@h:22/a@v1",
        ),
        ("http://[::1]:8080/a@b ssh://[::1]:22/a@b", "http://[::1]:8080/a@b ssh://[::1]:22/a@b"),
    ],
)
def test_passwords_and_tokens_of_urls_are_masked(words: str, shown: str) -> None:
    """Tokens in the user part of a URL, and passwords with `#` or `/`, were printed."""
    assert masked(words) == shown


@pytest.mark.parametrize("name", ["private_token", "secret", "auth", "key", "api_key", "apikey"])
def test_values_of_secret_parameters_are_masked(name: str) -> None:
    """The value of `?secret=` was printed."""
    assert masked(f"https://host/x?v=1&{name}=s3cret&w=2") == f"https://host/x?v=1&{name}=****&w=2"


def test_missing_uv_is_reported_with_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setattr(uv_compile, "REINSTALL", "install deepcdk again")  # as in a wheel, which has no Makefile
    with pytest.raises(UvError, match="uv is not installed, but deepcdk needs it") as found:
        ask(Wanted(directory=tmp_path, requirements="", modules=frozenset()), KIND, os.environ)
    assert found.value.remedy == "install deepcdk again"


def ask_for_toy(index: str, directory: Path) -> Answer:
    """Ask uv for a package of an index, with an empty cache and without the machine's settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    environ |= {"UV_CACHE_DIR": str(directory / "cache"), "UV_DEFAULT_INDEX": index, "UV_NO_CONFIG": "1"}
    wanted = Wanted(directory=directory, requirements="", modules=frozenset(), lines=("toy",))
    return ask(wanted, KIND, environ)


def test_packages_come_through_the_proxy(tmp_path: Path, proxy: type[Proxy]) -> None:
    write_stand_in(tmp_path, "toy", "1.0")
    proxy.answers["/packages/toy/"] = b'<a href="/toy-1.0-py3-none-any.whl">toy-1.0-py3-none-any.whl</a>'
    proxy.answers["/toy-1.0-py3-none-any.whl"] = (tmp_path / "toy-1.0-py3-none-any.whl").read_bytes()
    assert ask_for_toy("http://index.invalid/packages", tmp_path).packages == {"toy": "1.0"}
    assert set(proxy.seen) == {"index.invalid"}


def test_proxy_that_requires_password_is_reported_without_password(tmp_path: Path, proxy: type[Proxy]) -> None:
    with pytest.raises(
        UnresolvedHereError, match=rf"through the proxy http://\*\*\*\*@{proxy.address}: .*prox"
    ) as failed:
        ask_for_toy("https://index.invalid/packages", tmp_path)
    assert ("word" in str(failed.value.what), "NO_PROXY" in failed.value.remedy) == (False, True)
    assert set(proxy.seen) == {"index.invalid:443"}


def test_unreachable_proxy_is_reported(tmp_path: Path, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with pytest.raises(UnresolvedHereError, match=r"through the proxy http://127\.0\.0\.1:9: .*refused"):
        ask_for_toy("https://index.invalid/packages", tmp_path)
    assert proxy.seen == []


def test_index_in_no_proxy_is_called_directly(
    tmp_path: Path, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "index.invalid")
    with pytest.raises(UnresolvedHereError) as failed:
        ask_for_toy("https://index.invalid/packages", tmp_path)
    assert ("through the proxy" in failed.value.what, proxy.seen) == (False, [])

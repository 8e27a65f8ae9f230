"""The ranks' variables: how they are parsed, and that secrets are on no command line and values in no message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UsageError
from cluster.runs.environment_variables import check_secrets, parse_environment, read_secrets
from tests.factories import make_spec
from tests.words import WORDS

VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(value=VALUES)
def test_value_is_everything_after_first_equals_sign(value: str) -> None:
    assert parse_environment([f"NAME={value}"]) == (("NAME", value),)


def test_last_value_of_a_name_counts() -> None:
    assert parse_environment(["A=1", "B=2", "A=3"]) == (("A", "3"), ("B", "2"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NAME", "must be NAME=VALUE; .*--secret NAME"),
        ("NAME swordfish", "must be NAME=VALUE; .*--secret NAME$"),
        ("=swordfish", "letters, digits and _"),
        ("MY-NAME=swordfish", "letters, digits and _"),
        ("HOROVOD_RANK=swordfish", "is set by the launcher"),
        ("DEEPCDK_RUN=swordfish", "is set by the launcher"),
        ("NAME=swordfish\0", "NUL"),
        ("NAME=swordfish\udcff", "not UTF-8"),
        ("NAME=swordfish" + "x" * 131072, "Linux allows at most 131,071"),
    ],
)
def test_bad_variable_is_rejected_without_its_value(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        parse_environment([text])
    assert "swordfish" not in str(caught.value)


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from file\n")
    found = read_secrets(["KEY", f"TOKEN=@{tmp_path}/token"], {"KEY": "from environment", "OTHER": "stays"})
    assert found == {"KEY": "from environment", "TOKEN": "from file"}


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ("KEY=swordfish", "must be NAME or NAME=@FILE"),
        ("MISSING", "is not in your environment"),
        ("KEY=@/no/such/file", "cannot be read: No such file"),
        ("HOROVOD_SIZE", "is set by the launcher"),
    ],
)
def test_bad_secret_is_rejected_without_its_value(given_: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read_secrets([given_], {"HOROVOD_SIZE": "swordfish"})
    assert "swordfish" not in str(caught.value)


@given(value=VALUES, end=st.sampled_from(["", "\n", "\r\n"]))
def test_secret_in_file_arrives_unchanged_without_trailing_newline(
    tmp_path_factory: pytest.TempPathFactory, value: str, end: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "token"
    file.write_bytes((value + end).encode())
    whole = value if end or not value.endswith("\n") else value[:-1].removesuffix("\r")
    if end == "\n":
        whole = whole.removesuffix("\r")  # "\r\n" is one line end
    assert read_secrets([f"TOKEN=@{file}"], {}) == {"TOKEN": whole}


@given(word=WORDS)
def test_any_text_is_a_variable_or_rejected(word: str) -> None:
    for text in (word, f"NAME={word}", f"{word}=x"):
        try:
            ((name, value),) = parse_environment([text])
        except UsageError:
            continue
        assert f"{name}={value}" == text
        assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
        make_spec(environment=((name, value),))


@pytest.mark.parametrize("file", ["~no-such-user/token", "x" * 5000, "/", "\udcff", "a\nb"])
def test_unreadable_file_is_rejected_by_name(file: str) -> None:
    with pytest.raises(UsageError, match="cannot be read: "):
        read_secrets([f"TOKEN=@{file}"], {})


def test_resumed_run_needs_exactly_its_secrets() -> None:
    check_secrets("one", ["A", "B"], {"A": "1", "B": "2"})
    with pytest.raises(UsageError, match="run one needs B; give each again"):
        check_secrets("one", ["A", "B"], {"A": "1"})
    with pytest.raises(UsageError, match=r"C.*is not a secret of run one"):
        check_secrets("one", ["A"], {"A": "1", "C": "3"})


def test_too_large_variables_are_rejected() -> None:
    many = {f"S{n}": "x" * 100_000 for n in range(11)}
    with pytest.raises(UsageError, match="at most 1,048,576 characters"):
        read_secrets(list(many), many)

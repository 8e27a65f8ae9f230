"""Lock files: credentials leave URLs, and paths of wheels are those of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment.requirements_lock import local_file, names_an_index, with_absolute_paths, without_credentials


def test_only_credentials_are_removed_from_options() -> None:
    lock = (
        "--index-url https://a%40b:p%22w@one:8080/packages\n"
        "--extra-index-url=https://token@two/packages # more\n"
        "-f http://other:word@one/wheels\n"
        "--find-links wheels\n"
        "toy==1.2 \\\n    --hash=sha256:aa\n"
    )
    text, found = without_credentials(lock)
    assert found == {"one": ("a@b", 'p"w'), "two": ("token", "")}
    expected = lock.replace("a%40b:p%22w@one", "one").replace("token@two", "two")
    assert text == expected  # the other user stays: netrc has one user per host


def test_directories_of_wheels_are_those_of_the_program() -> None:
    lock = "-f .\n--find-links 'two words'\n--find-links=/there\n--find-links https://host/wheels\ntoy==1.2\n"
    assert with_absolute_paths(lock, Path("/program")) == (
        "-f /program\n--find-links '/program/two words'\n--find-links=/there\n"
        "--find-links https://host/wheels\ntoy==1.2\n"
    )


def test_file_is_found_in_the_directories_of_a_lock_file(tmp_path: Path) -> None:
    (tmp_path / "two words").mkdir()
    (tmp_path / "two words" / "toy-1.2.tar.gz").touch()
    lock = "--find-links https://host/wheels\n-f .\n--find-links 'two words'\ntoy==1.2\n"
    assert local_file(lock, tmp_path, "toy-1.2.tar.gz") == tmp_path / "two words" / "toy-1.2.tar.gz"
    assert local_file(lock, tmp_path, "toy-1.3.tar.gz") is None


@pytest.mark.parametrize(
    ("requirements", "names"),
    [
        ("humanize==4.0\n# -i https://one.example", False),
        ("--index-urls-of-mine", False),
        ("-ihttps://one.example/packages", True),
        ("humanize\n--index-url=https://one.example/packages", True),
        ("-rother.txt", True),
        ("--no-index", True),
    ],
)
def test_requirements_that_name_an_index_are_recognized(requirements: str, names: bool) -> None:
    assert names_an_index(requirements) is names

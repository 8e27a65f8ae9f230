"""Facts about credentials of package indexes: in a file of this user's alone, not in URLs."""

from __future__ import annotations

import netrc
from pathlib import Path

from agent.environment.index_credentials import netrc_environment, without_credentials


def test_options_lose_their_credentials_and_nothing_else_changes() -> None:
    lock = (
        "--index-url https://a%40b:p%22w@one:8080/simple\n"
        "--extra-index-url=https://token@two/simple # more\n"
        "-f http://other:word@one/wheels\n"
        "--find-links wheels\n"
        "toy==1.2 \\\n    --hash=sha256:aa\n"
    )
    text, found = without_credentials(lock)
    assert found == {"one": ("a@b", 'p"w'), "two": ("token", "")}
    expected = lock.replace("a%40b:p%22w@one", "one").replace("token@two", "two")
    assert text == expected  # a netrc file has one user for a host: another's stays where it is


def test_python_reads_the_credentials_back_beside_those_of_other_hosts(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.write_text("machine three login ann password plain\nmachine one login old password old")
    found = netrc_environment({"one": ("a@b", 'p"w\\ #x'), "two": ("token", "")}, {"NETRC": str(before)}, tmp_path)
    file = Path(found["NETRC"])
    assert netrc.netrc(str(file)).hosts == {
        "three": ("ann", "", "plain"), "one": ("a@b", "", 'p"w\\ #x'), "two": ("token", "", "")
    }  # fmt: skip
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_credentials_there_is_no_file(tmp_path: Path) -> None:
    assert netrc_environment({}, {"A": "b"}, tmp_path) == {"A": "b"}
    assert list(tmp_path.iterdir()) == []

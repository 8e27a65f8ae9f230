"""Requirements files as read in addition to uv: their options, hashes, and requirements for Horovod."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.spec.node_kinds import RuntimeKind
from cluster.programs.requirements_file import RequirementsError, RequirementsFile, allowed_hashes

KIND = RuntimeKind(processor="x86_64", python="3.12")


def read(directory: Path, text: str, **more: str) -> RequirementsFile:
    (directory / "requirements.txt").write_text(text, encoding="utf-8")
    for name, content in more.items():
        (directory / f"{name}.txt").write_text(content, encoding="utf-8")
    return RequirementsFile.read(directory, "requirements.txt")


def test_nodes_ask_the_indexes_that_requirements_name(tmp_path: Path) -> None:
    text = """\
-i https://a
# --no-index
--find-links=wheels
-f "two words"
torch
--extra-index-url https://b # more
--pre
--no-binary \\
    numpy
--find-links https://c/wheels.html
"""
    assert read(tmp_path, text).options == (
        "-i https://a",
        "--extra-index-url https://b",
        "--find-links https://c/wheels.html",
    )


def test_included_files_count_once_even_in_a_cycle(tmp_path: Path) -> None:
    found = read(tmp_path, "--requirement more.txt\n-c limits.txt\n", more="-r requirements.txt\n--no-index\n")
    assert found.options == ("--no-index",)
    assert RequirementsFile.read(tmp_path, "").options == ()


def test_editable_repository_becomes_a_plain_one(tmp_path: Path) -> None:
    text = "toy\n-e git+https://host/a.git@v1#egg=a&subdirectory=sub\n-e git+ssh://host/b.git\n-e ./lib\n"
    assert read(tmp_path, text).without_editable == (
        "toy", "a @ git+https://host/a.git@v1#subdirectory=sub", "git+ssh://host/b.git", "-e ./lib",
    )  # fmt: skip
    assert read(tmp_path, "toy\n-e ./lib\n").without_editable == ()


def test_text_that_is_not_utf_8_is_rejected_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("toy\n".encode("utf-16"))
    with pytest.raises(RequirementsError, match=r"requirements\.txt is not UTF-8"):
        RequirementsFile.read(tmp_path, "requirements.txt")
    with pytest.raises(RequirementsError, match=r"nothere\.txt cannot be read: No such file"):
        read(tmp_path, "-r nothere.txt\n")


def test_hashes_are_those_of_a_package_over_all_its_lines(tmp_path: Path) -> None:
    text = "Toy==1.2 --hash=sha256:AA \\\n  --hash sha256:bb\ntoy==1.3; python_version<'3' --hash=sha256:cc\nother\n"
    assert read(tmp_path, text).hashes == {"toy": frozenset({"sha256:aa", "sha256:bb", "sha256:cc"})}


def test_lock_has_only_hashes_allowed_by_requirements() -> None:
    there = frozenset({"sha256:aa", "sha256:bb"})
    assert allowed_hashes("toy", "1.2", there, None) == there
    assert allowed_hashes("toy", "1.2", there, frozenset({"sha256:bb", "sha256:dd"})) == {"sha256:bb"}
    assert allowed_hashes("toy", "1.2", there, frozenset({"sha512:ee"})) == {"sha512:ee"}
    with pytest.raises(
        RequirementsError, match=r"no file of toy==1\.2 in the index has a hash that the requirements allow"
    ):
        allowed_hashes("toy", "1.2", there, frozenset({"sha256:dd"}))


@pytest.mark.parametrize(
    ("line", "excluding"),
    [
        ("horovod", ""),
        ("horovod[tensorflow]==0.28.*", ""),
        ("horovod>=0.28,<1", ""),
        ("horovod @ git+https://host/horovod.git", ""),
        ("Horovod~=0.27.0", "horovod~=0.27.0"),
        ("horovod<0.28 ; python_version>='3.12'", "horovod<0.28"),
        ("horovod<0.28 ; sys_platform=='darwin'", ""),
    ],
)
def test_reason_against_package_version_is_shown(tmp_path: Path, line: str, excluding: str) -> None:
    assert read(tmp_path, f"{line}\n").excluding("horovod", "0.28.1", KIND) == excluding

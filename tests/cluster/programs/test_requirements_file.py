"""Facts about requirements files as they are read beside uv: their options, hashes, and what they ask of Horovod."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.spec.kinds import RuntimeKind
from cluster.programs.requirements_file import RequirementsError, RequirementsFile, locked_hashes

KIND = RuntimeKind(processor="x86_64", python="3.12")
LOCK = "--no-index\ntoy==1.2 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nother==1 \\\n    --hash=sha256:cc\n"


def read(directory: Path, text: str, **more: str) -> RequirementsFile:
    (directory / "requirements.txt").write_text(text, encoding="utf-8")
    for name, content in more.items():
        (directory / f"{name}.txt").write_text(content, encoding="utf-8")
    return RequirementsFile.read(directory, "requirements.txt")


def test_options_that_say_where_packages_come_from_and_in_which_form_go_on_to_the_nodes(tmp_path: Path) -> None:
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
        "--find-links wheels",
        "--find-links 'two words'",
        "--extra-index-url https://b",
        "--no-binary     numpy",
        "--find-links https://c/wheels.html",
    )


def test_included_files_count_once_and_a_circle_of_them_ends(tmp_path: Path) -> None:
    found = read(tmp_path, "--requirement more.txt\n-c limits.txt\n", more="-r requirements.txt\n--no-index\n")
    assert found.options == ("--no-index",)
    assert RequirementsFile.read(tmp_path, "").options == ()


@pytest.mark.parametrize("place", ["/somewhere", "../wheels", "linked", "file:///somewhere/wheels"])
def test_a_directory_of_wheels_that_is_not_uploaded_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "linked").symlink_to("/usr")
    with pytest.raises(RequirementsError, match=f"the nodes would not have --find-links {place}") as refused:
        read(tmp_path, f"--find-links {place}\n").options  # noqa: B018 - asked for its error
    assert "a relative path" in refused.value.remedy


@pytest.mark.parametrize("text", ["-r ../common.txt\n", "-c ../limits.txt\n", "-r linked.txt\n"])
def test_included_files_that_are_not_uploaded_are_named(tmp_path: Path, text: str) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (tmp_path / "common.txt").write_text("toy\n")
    (program / "linked.txt").symlink_to("../common.txt")
    with pytest.raises(RequirementsError, match=rf"{text[3:].strip()} is not uploaded"):
        read(program, text).check_uploaded()
    read(program, "-r plain.txt\n-c limits.txt\n", plain="toy\n").check_uploaded()


def test_text_that_is_not_utf_8_is_refused_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("toy\n".encode("utf-16"))
    with pytest.raises(RequirementsError, match=r"requirements\.txt is not UTF-8"):
        RequirementsFile.read(tmp_path, "requirements.txt")
    with pytest.raises(RequirementsError, match=r"nothere\.txt cannot be read: No such file"):
        read(tmp_path, "-r nothere.txt\n")


def test_hashes_are_those_of_a_package_over_all_its_lines(tmp_path: Path) -> None:
    text = "Toy==1.2 --hash=sha256:AA \\\n  --hash sha256:bb\ntoy==1.3; python_version<'3' --hash=sha256:cc\nother\n"
    assert read(tmp_path, text).hashes == {"toy": frozenset({"sha256:aa", "sha256:bb", "sha256:cc"})}


def test_a_lock_has_no_hash_that_the_requirements_do_not_allow() -> None:
    assert locked_hashes(LOCK, {}) == LOCK
    assert locked_hashes(LOCK, {"toy": frozenset({"sha256:bb", "sha256:dd"})}) == LOCK.replace(
        "    --hash=sha256:aa \\\n", ""
    )
    by_another_algorithm = locked_hashes(LOCK, {"toy": frozenset({"sha512:ee"})})
    assert "toy==1.2 \\\n    --hash=sha512:ee\nother==1" in by_another_algorithm
    with pytest.raises(RequirementsError, match=r"no file of toy==1\.2 has a hash that the requirements allow"):
        locked_hashes(LOCK, {"toy": frozenset({"sha256:dd"})})


@pytest.mark.parametrize(
    ("line", "refusal"),
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
def test_what_is_asked_of_a_package_in_this_version_is_said(tmp_path: Path, line: str, refusal: str) -> None:
    assert read(tmp_path, f"{line}\n").refusal("horovod", "0.28.1", KIND) == refusal

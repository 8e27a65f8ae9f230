"""Facts about a program's own packages: laid over the runtime, the same on all nodes, made once for each content."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agent.environment.overlay import (
    Overlay,
    OverlayBuilder,
    OverlayError,
    names_index,
    parse_report,
    refers_to_files,
    requirement_lines,
)

REPORT = {
    "install": [
        {"metadata": {"name": "toy", "version": "1.2"}, "download_info": {"url": "https://example.org/toy.whl"}},
        {
            "metadata": {"name": "own", "version": "0.1"},
            "download_info": {
                "url": "https://example.org/own.git",
                "vcs_info": {"vcs": "git", "commit_id": "c0ffee", "requested_revision": "main"},
            },
        },
    ]
}


def make(tmp_path: Path, requirements: str, **changes: object) -> Overlay:
    """Lay out a program with these requirements."""
    program = tmp_path / "payloads" / "fedcba9876543210" / "program"
    program.mkdir(parents=True, exist_ok=True)
    (program / "requirements.txt").write_text(requirements)
    overlay = Overlay(
        runtime=Path(sys.executable),
        program=program,
        requirements="requirements.txt",
        further=(),
        root=tmp_path / "layers",
        wheelhouse=tmp_path / "wheelhouse",
    )
    return dataclasses.replace(overlay, **changes)  # type: ignore[arg-type]  # the tests give what fits


def test_a_report_becomes_sources_and_pins_with_the_commit_that_was_resolved() -> None:
    sources, pins = parse_report(REPORT)
    assert sources == ["toy @ https://example.org/toy.whl", "own @ git+https://example.org/own.git@c0ffee"]
    assert pins == ["toy==1.2", "own==0.1"]


def test_comments_and_blank_lines_mean_nothing(tmp_path: Path) -> None:
    assert requirement_lines("# all\n\ntoy>=1  # why\nother @ https://x/y#egg=other\n") == [
        "toy>=1",
        "other @ https://x/y#egg=other",
    ]
    assert make(tmp_path, "toy\n").fingerprint == make(tmp_path, "# why\n\ntoy # here\n").fingerprint


@pytest.mark.parametrize(
    ("line", "refers"),
    [
        ("toy>=1", False),
        ("toy @ https://example.org/toy.tar.gz", False),
        ("-r more.txt", True),
        ("--find-links wheels", True),
        ("-e ./lib", True),
        ("./lib", True),
        ("wheels/toy-1.0-py3-none-any.whl", True),
        ("toy @ file:///somewhere", True),
        ("--pre", False),
    ],
)
def test_requirements_that_name_files_depend_on_the_whole_tree(tmp_path: Path, line: str, refers: bool) -> None:
    assert refers_to_files(line) == refers
    here = make(tmp_path, line)
    other = make(tmp_path / "other", line)
    moved = dataclasses.replace(here, program=other.program.parent.rename(tmp_path / "0123456789abcdef") / "program")
    assert (here.fingerprint != moved.fingerprint) == refers


def test_a_byte_order_mark_hides_no_file_that_is_named(tmp_path: Path) -> None:
    here = make(tmp_path, "")
    (here.program / here.requirements).write_bytes(b"\xef\xbb\xbf-r more.txt\r\n")
    other = here.program.parent.with_name("0123456789abcdef")
    before = here.fingerprint
    here.program.parent.rename(other)
    assert dataclasses.replace(here, program=other / "program").fingerprint != before


def test_another_runtime_or_further_packages_make_another_layer(tmp_path: Path) -> None:
    overlay = make(tmp_path, "toy\n")
    others = [dataclasses.replace(overlay, runtime=Path("/other")), dataclasses.replace(overlay, further=("tf-keras",))]
    assert len({overlay.fingerprint, *(other.fingerprint for other in others)}) == 3


def test_requirements_that_are_gone_are_told(tmp_path: Path) -> None:
    with pytest.raises(OverlayError, match=r"missing\.txt cannot be read"):
        _ = dataclasses.replace(make(tmp_path, ""), requirements="missing.txt").fingerprint


def wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    """Write a wheel with one module, which holds its version."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a runtime of wheels that bear the names that matter."""
    place = tmp_path_factory.mktemp("runtime")
    for name, version in (("tensorflow_cpu", "2.21.0"), ("horovod", "0.28.1"), ("numpy", "2.4.6"), ("toy", "1.0")):
        wheel(place / "wheels", name, version)
    venv.create(place / "env", with_pip=True)
    python = place / "env" / "bin" / "python"
    install = ["-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check"]
    subprocess.run([python, *install, *(place / "wheels").glob("*.whl")], check=True)
    return python


def said(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_layer_adds_what_the_runtime_lacks_and_leaves_the_runtime_alone(tmp_path: Path, runtime: Path) -> None:
    text = "--no-index\n--find-links wheels\nnewer\ntoy>=1.2\nhorovod\ntensorflow>=2.4\n"
    overlay = make(tmp_path, text, runtime=runtime)
    wheel(overlay.program / "wheels", "newer", "3.0", "tensorflow>=2.20", "numpy", "extra")
    wheel(overlay.program / "wheels", "extra", "0.1")
    wheel(overlay.program / "wheels", "toy", "1.2")
    python = OverlayBuilder(overlay=overlay, report=lambda line: None).ensure()
    code = "import toy, newer, extra, horovod; print(toy.VERSION, newer.VERSION, extra.VERSION, horovod.__file__)"
    versions, _, where = said(python, code).rpartition(" ")
    assert versions == "1.2 3.0 0.1"
    assert where.startswith(str(runtime.parent.parent))
    assert said(runtime, "import toy; print(toy.VERSION)") == "1.0"
    # A second node has only the shared file system: no index, and not the first one's overlay.
    (overlay.program / "wheels").rename(tmp_path / "gone")
    second = dataclasses.replace(overlay, root=tmp_path / "second")
    assert said(OverlayBuilder(overlay=second, report=lambda line: None).ensure(), code).startswith("1.2 3.0 0.1")
    assert OverlayBuilder(overlay=second, report=pytest.fail).ensure() == second.python


def test_what_a_layer_unpacks_lies_beside_it_and_not_in_tmp(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = make(tmp_path, "--no-index\n--find-links wheels\nnewer\n", runtime=runtime)
    wheel(overlay.program / "wheels", "newer", "3.0")
    run, given = subprocess.run, list[str]()

    def recorded(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        given.append(options["env"]["TMPDIR"])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", recorded)
    OverlayBuilder(overlay=overlay, report=lambda line: None).ensure()
    assert set(given) == {str(overlay.root / f"{overlay.fingerprint}.tmp")}
    assert sorted(path.name for path in overlay.root.iterdir()) == [overlay.fingerprint, f"{overlay.fingerprint}.lock"]


def test_requirements_against_the_runtime_are_refused_with_what_it_has(tmp_path: Path, runtime: Path) -> None:
    overlay = make(tmp_path, "--no-index\ntensorflow==2.10\n", runtime=runtime)
    with pytest.raises(OverlayError, match=r"keep: horovod 0\.28\.1, numpy 2\.4\.6, tensorflow 2\.21\.0") as caught:
        OverlayBuilder(overlay=overlay, report=lambda line: None).ensure()
    assert "tensorflow==2.10" in str(caught.value)
    assert not (overlay.directory / ".complete").exists()


def test_what_was_cut_short_is_made_anew(tmp_path: Path, runtime: Path) -> None:
    overlay = make(tmp_path, "", runtime=runtime)
    (overlay.directory / "bin").mkdir(parents=True)
    python = OverlayBuilder(overlay=overlay, report=lambda line: None).ensure()
    assert said(python, "import toy; print(toy.VERSION)") == "1.0"


@pytest.mark.parametrize(
    ("requirements", "names"),
    [
        ("humanize==4.0", False),
        ("# -i https://one.example\nhumanize", False),
        ("-i https://one.example/simple\nhumanize", True),
        ("-ihttps://one.example/simple", True),
        ("--index-url=https://one.example/simple", True),
        ("-rother.txt", True),
        ("--no-index", True),
        ("--index-urls-of-mine", False),
    ],
)
def test_requirements_that_name_an_index_are_recognised(requirements: str, names: bool) -> None:
    assert names_index(requirements) is names

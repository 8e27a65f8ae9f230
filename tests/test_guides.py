"""Everything that the README and the guides mention exists: files, headings, modules, tests, tasks and flags."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from cluster.cli import task_modules

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = (ROOT, ROOT / "docs", ROOT / "localcloud", ROOT / "localcloud" / "docs")
GUIDES: Final = sorted(guide for folder in FOLDERS for guide in folder.glob("*.md"))
ROOMS: Final = "stacks|agent|payload|cluster|localcloud|tools|tests|benchmarks|docs|requirements"
OTHERS: Final = ("CHANGELOG.md", "tour.md", "comparison.md")
"""Guides that mention paths of older versions or other projects."""


def prose(text: str) -> str:
    """Return a guide without its code blocks."""
    return re.sub(r"^```.*?^```|^    [^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors of a guide's headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(guide: Path) -> list[str]:
    """Return a guide's links to files or headings that do not exist."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(guide.read_text(encoding="utf-8")))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = guide.parent / path if path else guide
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def missing_paths(text: str) -> list[str]:
    """Return the paths and modules of the project that a text mentions but that do not exist."""
    named = re.findall(r"`([^`\n]+)`", prose(text))
    paths = [name for name in named if re.fullmatch(rf"(?:{ROOMS})/[a-z0-9_./-]*", name)]
    dotted = [name for name in named if re.fullmatch(rf"(?:{ROOMS})(?:\.[a-z0-9_]+)+", name)]
    modules = [name for name in dotted if not name.endswith((".py", ".txt"))]
    commands = re.findall(rf"python3? -m ((?:{ROOMS})[a-z0-9_.]*)", text)
    found = [path for path in paths if not (ROOT / path).exists()]
    return found + [module for module in (*modules, *commands) if not is_module(module.rstrip("."))]


def is_module(name: str) -> bool:
    """Return whether a name is a module or package of the project."""
    paths = [base.joinpath(*name.split(".")) for base in (ROOT, ROOT / "localcloud" / "src")]
    return any(path.with_suffix(".py").is_file() or path.is_dir() for path in paths)


def unknown_flags(text: str) -> list[str]:
    """Return the `fab` commands in a text that have an unknown task or flag."""
    tasks = task_modules.collection().tasks
    found = []
    for command in re.findall(r"(?m)(?:`|^    (?:\$ )?)(fab [a-z][^`\n#|]*)", text):
        try:
            name, *words = shlex.split(command)[1:]
        except ValueError:  # an example of bad quoting
            continue
        own = words[: words.index("--")] if "--" in words else words
        task = tasks.get(name)
        known = {f"--{flag.parameter.rstrip('_').replace('_', '-')}" for flag in task.flags} if task else set()
        known |= {f"--no-{flag.parameter}" for flag in task.flags if flag.typed_default is True} if task else set()
        if task is None or [word for word in own if re.match(r"--[a-z]", word) and word.split("=")[0] not in known]:
            found.append(command)
    return found


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_a_target(guide: Path) -> None:
    assert broken_links(guide) == []


@pytest.mark.parametrize("guide", [path for path in GUIDES if path.name not in OTHERS], ids=lambda path: str(path.name))
def test_every_path_and_module_in_a_guide_exists(guide: Path) -> None:
    assert missing_paths(guide.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("guide", [path for path in GUIDES if path.name not in OTHERS], ids=lambda path: str(path.name))
def test_every_task_and_flag_in_a_guide_exists(guide: Path) -> None:
    assert unknown_flags(guide.read_text(encoding="utf-8")) == []


def test_every_task_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in task_modules.collection().tasks if f"fab {name}" not in readme] == []


def test_every_test_in_a_guide_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
    assert len(named) >= 15
    tests = {
        file: {getattr(node, "name", "") for node in ast.parse((ROOT / file).read_text()).body} for file, _ in named
    }
    assert [f"{file}::{name}" for file, name in named if name not in tests[file]] == []


def test_matrix_of_reachability_cites_each_listed_test() -> None:
    matrix, listed = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").split("\n## ")[0].split("\n1. ")
    cited = {int(number) for number in re.findall(r"\[(\d+)\]", matrix)}
    assert cited == {1, *(int(number) for number in re.findall(r"^(\d+)\. ", listed, flags=re.MULTILINE))}


def test_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_broken_links_and_missing_paths_are_found(tmp_path: Path) -> None:
    guide = tmp_path / "guide.md"
    guide.write_text("# One: two\n[a](#one-two) [b](guide.md#three) [c](absent.md) [d](https://x.example)\n")
    assert broken_links(guide) == ["guide.md#three", "absent.md"]
    text = "`stacks/config.py` `stacks/absent.py` `stacks.absent` `tools.setup`\n    python -m tools.absent --flag\n"
    assert missing_paths(text) == ["stacks/absent.py", "stacks.absent", "tools.absent"]


def test_guide_says_that_nfs_is_mounted_without_tls() -> None:
    script, guide = (ROOT / name for name in ("stacks/scripts/boot.sh", "docs/storage.md"))
    options = re.findall(r"^  (nfsvers=\S+)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(options) == 1
    encrypted = "tls" in options[0].split(",")
    assert ("EFS is not encrypted in transit." in guide.read_text(encoding="utf-8")) is not encrypted

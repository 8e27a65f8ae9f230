"""Facts about measuring tests by mutants."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.mutants import MutantsError, file_of_tests, measure, sample

SOURCE = '''"""A module."""

from __future__ import annotations

import dataclasses

LIMIT: int | None = 3


@dataclasses.dataclass(frozen=True)
class Box:
    size: int = 2

    @property
    def fits(self) -> bool:
        return self.size <= LIMIT and self.size > 0
'''
ALL = 1000


def changed_lines(count: int, seed: int = 1) -> list[str]:
    added = []
    for mutant in sample("a/b.py", SOURCE, count, seed):
        added += [line[1:].strip() for line in mutant.diff.splitlines()[2:] if line.startswith("+")]
    return added


def test_constants_defaults_and_properties_are_changed_and_annotations_and_decorators_are_not() -> None:
    lines = changed_lines(ALL)
    assert {"LIMIT: int | None = 4", "size: int = 3", "return self.size < LIMIT and self.size > 0"} <= set(lines)
    assert not [line for line in lines if "int & None" in line or "frozen" in line]


def test_no_two_mutants_are_the_same_and_each_compiles() -> None:
    codes = [mutant.code for mutant in sample("a/b.py", SOURCE, ALL, seed=1)]
    assert len(set(codes)) == len(codes) > 5
    for code in codes:
        compile(code, "a/b.py", "exec")


def test_a_seed_gives_the_same_sample_again_and_another_seed_another() -> None:
    assert changed_lines(3) == changed_lines(3)
    assert len(changed_lines(3)) == 3
    assert len({tuple(changed_lines(3, seed)) for seed in range(5)}) > 1


def test_every_operator_has_the_same_chance() -> None:
    source = "words = [" + ", ".join(f"'w{n}'" for n in range(50)) + "]\nfew = words < words\n"
    first = [sample("a/b.py", source, 1, seed)[0].operator for seed in range(40)]
    assert first.count("swap_op") > 8  # one place of more than 100


def test_a_module_is_held_against_its_own_test_file() -> None:
    assert file_of_tests("agent/hardware/cpulist.py") == "tests/agent/hardware/test_cpulist.py"
    assert file_of_tests("fabfile.py") == "tests/test_fabfile.py"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a small repository, each module of it with another kind of tests; plugins of pytest take seconds to load."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    settings = ("[tool.pytest.ini_options]", 'addopts = "--import-mode=importlib"', 'pythonpath = ["."]')
    files = {
        "pyproject.toml": "\n".join(settings),
        "a/strict.py": "def more(n):\n    return n + 1\n",
        "a/loose.py": "def more(n):\n    return n + 1\n",
        "a/endless.py": "def down(n):\n    while n:\n        n -= 1\n    return n\n",
        "a/broken.py": "VALUE = 1\n",
        "tests/a/test_strict.py": "from a.strict import more\n\ndef test_it():\n    assert more(5) == 6\n",
        "tests/a/test_loose.py": "from a.loose import more\n\ndef test_it():\n    more(5)\n",
        "tests/a/test_endless.py": "from a.endless import down\n\ndef test_it():\n    assert down(3) == 0\n",
        "tests/a/test_broken.py": "def test_it():\n    assert False\n",
        "a/untested.py": "VALUE = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def run_on(checkout: Path, *modules: str, count: int = 1) -> int:
    return measure(modules, per_module=count, seed=1, marks="", jobs=1, root=checkout)


def test_a_survivor_is_printed_with_its_diff_and_the_checkout_stays_as_it_was(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_text() for path in checkout.rglob("*.py")}
    assert run_on(checkout, "a/strict.py", "a/loose.py") == 1
    out = capsys.readouterr().out
    assert out.count("--- a/loose.py") == 1
    assert "-    return n + 1" in out and "a/strict.py" not in out
    assert out.endswith("2 mutants of 2 modules, seed 1: 1 killed (50 %), 1 survived\n")
    assert {path: path.read_text() for path in checkout.rglob("*.py")} == before


def test_a_mutant_that_never_ends_is_killed_in_time(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.mutants.TIMEOUT_FACTOR", 0)
    monkeypatch.setattr("tools.mutants.TIMEOUT_EXTRA_S", 3)
    assert run_on(checkout, "a/endless.py", count=ALL) == 0


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("a/absent.py", "no file a/absent.py"),
        ("a/untested.py", "no file tests/a/test_untested.py"),
        ("a/broken.py", "before any change"),
    ],
)
def test_what_cannot_be_measured_is_named(checkout: Path, module: str, why: str) -> None:
    with pytest.raises(MutantsError, match=f"^{module}: .*{why}"):
        run_on(checkout, module)

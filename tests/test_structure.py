"""Imports have no cycles."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import grimp
import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("deepcdk", "stacks", "agent", "payload", "cluster", "localcloud", "tools")


def imports(*packages: str) -> dict[str, set[str]]:
    """Map each module of these packages to its imports, including those inside functions and under TYPE_CHECKING."""
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}


def cycle(graph: Mapping[str, Iterable[str]]) -> str:
    """Return one import cycle as a line, or an empty string."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return " imports ".join(reversed(error.args[1]))  # graphlib lists imported modules first
    return ""


def test_no_cycle_of_imports() -> None:
    assert cycle(imports(*PRODUCT)) == ""


@pytest.mark.parametrize(
    "late",
    [
        "def late() -> None:\n    import {package}.first\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {package} import first\n",
        "from {package}.first import name\n",
        "from .first import name\n",
    ],
)
def test_cycle_is_found_in_every_form_of_import(late: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "made_up_for_the_test_of_cycles"
    folder = tmp_path / package
    folder.mkdir()
    texts = {"__init__": "", "first": f"from {package} import second\n", "second": f"import {package}.third\n"}
    for name, text in (texts | {"third": ""}).items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert cycle(imports(package)) == ""
    (folder / "third.py").write_text(late.format(package=package))
    found = cycle(imports(package))
    assert sorted(set(found.split(" imports "))) == [f"{package}.{name}" for name in ("first", "second", "third")]
    assert f"{package}.first imports {package}.second" in found

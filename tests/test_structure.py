"""The shape of the code: small folders, no circle of imports, and names that mean one thing in a room."""

from __future__ import annotations

import graphlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import grimp
import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("stacks", "agent", "payload", "cluster", "localcloud", "tools")
MOST_MODULES: Final = 25
"""Modules in one folder: as many as a reader takes in at a glance."""
MOST_ROOMS: Final = 3
"""Rooms that may each have a module of the same name. `agent/runs/follow.py` and `cluster/runs/follow.py` are the two
ends of one connection; a name in four rooms says nothing."""

LAYERS: Final = {
    ("stacks", "stacks/config_keys", "stacks/validation"): "a subject has its resources, its keys and its rules",
    ("agent", "agent/spec"): "what crosses the wire, and what acts on it",
    ("payload/recipes", "payload/data/datasets"): "a recipe is named after the data set that it trains on",
    ("payload/settings", "payload/training"): "a group of settings, and what acts on it",
    ("payload/models", "payload/data"): "registry.py: what can be trained, and what on",
    ("cluster", "cluster/tasks"): "the tasks of a noun, and what carries them out",
    ("cluster/cli", "cluster/programs"): "program.py: the command fab, and a program of the user's",
    ("localcloud/api", "localcloud/api/cloudformation/types", "localcloud/guest"): (
        "a service, its CloudFormation types, and what uses it in the hosts"
    ),
    ("localcloud/api/cloudformation", "localcloud/api/cloudformation/actions"): "a noun, and the API's actions on it",
}
"""Folders, with all that lies in them, whose modules may share names, and why."""

REPEATED: Final = {
    "__main__.py": "Python's own name for what `python -m` runs",
    "errors.py": "what a package raises",
    "config.py": "what a program is started with, read from its arguments",
    "tables.py": "what a package shows, as tables",
}
"""Names that may recur anywhere, and why."""


def modules(root: Path, folders: Iterable[str]) -> list[PurePosixPath]:
    """Return the modules under folders of `root`, relative to it, without `__init__.py`."""
    found = itertools.chain.from_iterable((root / folder).rglob("*.py") for folder in folders)
    return sorted(PurePosixPath(path.relative_to(root)) for path in found if path.name != "__init__.py")


def crowded(paths: Iterable[PurePosixPath], most: int = MOST_MODULES) -> dict[str, int]:
    """Return the folders with more modules than `most`, each with its number."""
    counts = Counter(str(path.parent) for path in paths)
    return {folder: count for folder, count in counts.items() if count > most}


def layer_of(folder: str, layers: Sequence[str]) -> str:
    """Return the innermost of some folders in which a folder lies, or nothing."""
    return max((layer for layer in layers if PurePosixPath(folder).is_relative_to(layer)), key=len, default="")


def differ(one: str, other: str, layers: Sequence[str]) -> bool:
    """Return whether two folders lie in two layers of one subject."""
    found = {layer_of(one, layers), layer_of(other, layers)}
    return len(found) == 2 and "" not in found


def repeated(paths: Iterable[PurePosixPath], layers: Iterable[Sequence[str]], free: Iterable[str]) -> list[str]:
    """Return the names that recur: in one room outside its layers, or in too many rooms."""
    folders: dict[tuple[str, str], list[str]] = defaultdict(list)
    rooms: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        if path.name not in free:
            folders[path.parts[0], path.name].append(str(path.parent))
            rooms[path.name].add(path.parts[0])
    allowed = list(layers)
    in_a_room = [
        f"{name} is in both {one} and {other}"
        for (_, name), places in folders.items()
        for one, other in itertools.combinations(places, 2)
        if not any(differ(one, other, layer) for layer in allowed)
    ]
    across = [f"{name} is in {', '.join(sorted(found))}" for name, found in rooms.items() if len(found) > MOST_ROOMS]
    return in_a_room + across


def imports(*packages: str) -> dict[str, set[str]]:
    """Return what each module imports of these packages: also inside functions and behind TYPE_CHECKING."""
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}


def circle(graph: Mapping[str, Iterable[str]]) -> str:
    """Return one circle of imports as a line, or nothing where there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return " imports ".join(reversed(error.args[1]))  # graphlib names predecessors first: what is imported
    return ""


def test_no_folder_has_too_many_modules() -> None:
    assert crowded(modules(ROOT, (*PRODUCT, "tests"))) == {}, f"more than {MOST_MODULES} modules: find a second noun"


def test_a_name_means_one_thing_in_a_room() -> None:
    assert repeated(modules(ROOT, PRODUCT), LAYERS, REPEATED) == []


def test_no_circle_of_imports() -> None:
    assert circle(imports(*PRODUCT)) == ""


def test_layers_that_may_share_names_share_some() -> None:
    idle = [
        layers
        for layers in LAYERS
        if repeated(modules(ROOT, PRODUCT), [other for other in LAYERS if other != layers], REPEATED) == []
    ]
    assert idle == [], "these share no name any more: remove them from LAYERS"


def test_a_module_in_excess_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "room" / "package"
    folder.mkdir(parents=True)
    for number in range(25):
        (folder / f"noun{number}.py").touch()
    (folder / "__init__.py").touch()
    assert crowded(modules(tmp_path, ["room"])) == {}
    (folder / "one_more.py").touch()
    assert crowded(modules(tmp_path, ["room"])) == {"room/package": 26}


def test_a_name_that_recurs_is_found_except_in_layers_of_one_subject() -> None:
    paths = [PurePosixPath(path) for path in ("room/keys/disk.py", "room/rules/disk.py", "other/disk.py")]
    assert repeated(paths, [], []) == ["disk.py is in both room/keys and room/rules"]
    assert repeated(paths, [("room/keys", "room/rules")], []) == []
    assert repeated(paths, [("room", "room/rules")], []) == []
    assert repeated(paths, [("room",)], []) == repeated(paths, [("room/keys",)], []) == repeated(paths, [], [])
    assert repeated(paths, [], ["disk.py"]) == []
    assert repeated([PurePosixPath(room, "disk.py") for room in "abcd"], [], []) == ["disk.py is in a, b, c, d"]


@pytest.mark.parametrize(
    "late",
    [
        "def late() -> None:\n    import {package}.first\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {package} import first\n",
        "from {package}.first import name\n",
        "from .first import name\n",
    ],
)
def test_a_circle_is_found_however_it_is_closed(late: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "made_up_for_the_test_of_circles"
    folder = tmp_path / package
    folder.mkdir()
    texts = {"__init__": "", "first": f"from {package} import second\n", "second": f"import {package}.third\n"}
    for name, text in (texts | {"third": ""}).items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert circle(imports(package)) == ""
    (folder / "third.py").write_text(late.format(package=package))
    found = circle(imports(package))
    assert sorted(set(found.split(" imports "))) == [f"{package}.{name}" for name in ("first", "second", "third")]
    assert f"{package}.first imports {package}.second" in found

"""`fab clean` on the nodes: its list of unused files, and removing them while runs start."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from agent.environment.virtual_environment import used_lock
from agent.errors import SpecError
from agent.files.build_once import COMPLETE
from agent.files.file_lock import file_lock
from agent.files.safe_read import count_files
from agent.runs import database
from agent.runs.node_claims import Runs
from agent.runs.run_directory import COURSE_FILE, RunDirectory
from agent.spec.run import RunSpec
from agent.spec.submission import Submission
from agent.staging.manifest import Manifest
from agent.staging.staged_dataset import StagedDataset
from agent.supervisor import clean, submit
from agent.supervisor.clean import (
    Sizes,
    data_items,
    list_or_remove_on_node,
    list_or_remove_shared,
    names_in_processes,
    node_items,
    remove,
    remove_data,
)
from tests.factories import make_program_spec, make_spec, make_state

OLD = 100_000


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    (tmp_path / "efs" / "runs").mkdir(parents=True)
    return tmp_path / "efs"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")
    monkeypatch.setattr(clean, "names_in_processes", frozenset)  # processes of this machine may contain any name
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def directory(path: Path, *, old: bool = True, size: int = 1000) -> Path:
    path.mkdir(parents=True)
    (path / "file").write_bytes(b"x" * size)
    if old:
        os.utime(path, (OLD, OLD))
    return path


def tree(mount: Path, name: str, folder: str) -> Path:
    path = mount / "payloads" / name
    directory(path / folder)
    os.utime(path, (OLD, OLD))
    return path


def wheels(mount: Path, name: str, *inside: str) -> Path:
    path = directory(mount / "payloads" / ".wheelhouse" / name)
    for each in inside:
        (path / each).mkdir()
    (path / COMPLETE).touch()
    return path


def make_run(mount: Path, spec: RunSpec, course: object = None) -> Path:
    path = mount / "runs" / spec.run_id
    path.mkdir()
    RunDirectory(path=path).write_state(make_state(run_id=spec.run_id))
    (path / "spec.json").write_text(spec.to_json())
    if course:
        (path / COURSE_FILE).write_text(json.dumps(course))
    return path


def unused(mount: Path, home: Path) -> set[str]:
    return {
        Path(item["path"]).name for item in list_or_remove_shared(mount, home, frozenset())["items"] if not item["used"]
    }


def test_trees_of_kept_runs_are_kept_and_others_are_listed_with_their_sizes(mount: Path, home: Path) -> None:
    """Source: ray-project/ray #55898."""
    spec = make_program_spec(efs_mount=str(mount))
    make_run(mount, spec)
    for name, folder in (
        (spec.agent, "agent"),
        (spec.program, "program"),
        ("1" * 16, "program"),
        ("2" * 16, "payload"),
    ):
        tree(mount, name, folder)
    found = {Path(item["path"]).name: item for item in list_or_remove_shared(mount, home, frozenset())["items"]}
    assert {name for name, item in found.items() if not item["used"]} == {"1" * 16, "2" * 16}
    assert found["1" * 16]["kind"] == "program" and found["1" * 16]["size"] == 1000


def test_only_named_and_unused_trees_are_removed(mount: Path, home: Path) -> None:
    """Source: ray-project/ray #55898."""
    spec = make_program_spec(efs_mount=str(mount))
    make_run(mount, spec)
    kept, gone, other = (tree(mount, name, "program") for name in (spec.program, "1" * 16, "2" * 16))
    outside = directory(mount / "data" / "mine")
    wanted = frozenset(map(str, (kept, gone, outside)))
    removed = list_or_remove_shared(mount, home, wanted)["items"]
    assert [item["path"] for item in removed] == [str(gone)]
    assert kept.exists() and other.exists() and outside.exists() and not gone.exists()
    assert sorted(path.name for path in (mount / "payloads").iterdir()) == sorted([kept.name, other.name])


def test_agents_are_kept_for_a_day_and_interrupted_uploads_for_an_hour(mount: Path, home: Path) -> None:
    tree(mount, "1" * 16, "agent")
    directory(mount / "payloads" / ("2" * 16) / "agent", old=False)
    directory(mount / "payloads" / f"{'3' * 16}.partial-12")
    directory(mount / "payloads" / f"{'4' * 16}.partial-12", old=False)
    tree(home / ".deepcdk", "trees", "agent")
    assert unused(mount, home) == {"1" * 16, f"{'3' * 16}.partial-12"}


def test_wheels_of_a_run_newest_runtime_and_installer_are_kept(mount: Path, home: Path) -> None:
    """Source: ray-project/ray #55898."""
    course = {
        "times": {},
        "runtime": {"path": f"/opt/x/{'a' * 15}1", "python": f"/home/x/layers/{'a' * 15}2/bin/python"},
    }
    make_run(mount, make_spec(efs_mount=str(mount)), course)
    for name in ("a" * 15 + "1", "a" * 15 + "2", "b" * 16):
        wheels(mount, name)
    os.utime(wheels(mount, "c" * 16, "custom_op"), (OLD, OLD))
    wheels(mount, "d" * 16, "custom_op")
    wheels(mount, "e" * 16, "uv-1.0-py3.whl")
    assert unused(mount, home) == {"b" * 16, "c" * 16}


def test_wheels_in_use_by_a_node_are_kept(mount: Path, home: Path) -> None:
    path = wheels(mount, "b" * 16)
    with file_lock(used_lock(path), shared=True), file_lock(used_lock(path), shared=True):
        assert list_or_remove_shared(mount, home, frozenset([str(path)]))["items"] == []
    assert path.exists()
    assert len(list_or_remove_shared(mount, home, frozenset([str(path)]))["items"]) == 1
    assert not path.exists()


def test_nothing_is_removed_if_the_spec_of_a_run_cannot_be_read(mount: Path, home: Path, tmp_path: Path) -> None:
    path = make_run(mount, make_program_spec(efs_mount=str(mount)))
    gone = tree(mount, "1" * 16, "program")
    (path / "spec.json").rename(tmp_path / "spec.json")
    (path / "spec.json").symlink_to(tmp_path / "spec.json")
    with pytest.raises(OSError, match="symbolic links"):
        list_or_remove_shared(mount, home, frozenset([str(gone)]))
    assert clean.main(["shared", str(mount), str(gone)]) == 1
    assert gone.exists()


def test_run_that_starts_during_removal_has_its_tree_or_reports_it(
    mount: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_program_spec(efs_mount=str(mount))
    monkeypatch.setattr(submit, "detach", lambda *_, **__: None)
    monkeypatch.setattr(submit, "_check_there", lambda _: None)
    tree(mount, spec.agent, "agent")
    runs, path = Runs(root=mount / "runs"), tree(mount, spec.program, "program")
    monkeypatch.setattr(submit, "_claim", lambda *_: spec)
    with database.transaction():  # `fab clean` holds it.
        errors: list[BaseException] = []

        def start() -> None:
            try:
                submit.start(runs, Submission(spec=spec))
            except SpecError as error:
                errors.append(error)

        starting = threading.Thread(target=start)
        starting.start()
        starting.join(0.3)
        assert starting.is_alive()
        path.rename(path.with_name("removed"))
    starting.join()
    assert "is missing; to upload it again, start a new run: repeat `fab train`" in str(errors[0])
    path.with_name("removed").rename(path)
    submit.start(runs, Submission(spec=spec))
    assert list_or_remove_shared(mount, home, frozenset([str(path)]))["items"] == []
    assert path.exists()


def test_environments_without_a_process_are_removed_on_the_node_with_the_address(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source: ray-project/ray #55898."""
    root = home / "layers"
    busy, idle, built = (directory(root / (letter * 16)) for letter in "abc")
    monkeypatch.setattr(clean, "names_in_processes", lambda: frozenset([busy.name]))
    monkeypatch.setattr(clean, "own_addresses", lambda: {"10.0.1.3": "eth0"})
    items = list(node_items(home, Sizes(home / "sizes"), [root]))
    assert {Path(item.path).name for item in items if not item.used} == {idle.name, built.name}
    words = [f"10.0.1.3:{busy}", f"10.0.1.3:{built}", f"10.0.1.4:{idle}"]
    with file_lock(built.with_suffix(".lock")):
        assert list_or_remove_on_node(items, words, remove)["items"] == []
    removed = list_or_remove_on_node(items, words, remove)["items"]
    assert [item["path"] for item in removed] == [str(built)]
    assert busy.exists() and idle.exists() and not built.exists()


def test_horovod_build_is_removed_unless_it_is_being_built(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task removed the builds in ~/.cache/deepcdk/horovod."""
    monkeypatch.setattr(clean, "DEFAULT_ROOT", home / "none")
    monkeypatch.setattr(clean, "own_addresses", lambda: {"10.0.1.3": "eth0"})
    built = directory(home / ".cache" / "deepcdk" / "horovod" / ("a" * 16))
    (item,) = node_items(home, Sizes(home / "sizes"))
    assert (item.kind, item.path, item.size) == ("Horovod build", str(built), 1000)
    with file_lock(built.with_suffix(".lock")):
        assert list_or_remove_on_node([item], [f"10.0.1.3:{built}"], remove)["items"] == []
    assert list_or_remove_on_node([item], [f"10.0.1.3:{built}"], remove)["items"]
    assert not built.exists()


def test_staged_data_is_removed_with_its_manifest_unless_it_is_being_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    staged = StagedDataset(root=root, name="digits")
    staged.directory.mkdir(parents=True)
    (staged.directory / "a").write_text("x")
    staged.finish(Manifest(entries=()))
    (root / "of mine").mkdir()
    (root / "linked").symlink_to("/etc")
    monkeypatch.setattr(clean, "own_addresses", lambda: {"10.0.1.3": "eth0"})
    items = list(data_items(root))
    assert [item.path for item in items] == [str(staged.directory)]
    with staged.reserved():
        assert not remove_data(staged.directory)
    assert list_or_remove_on_node(items, [f"10.0.1.3:{staged.directory}"], remove_data)["items"]
    assert {path.name for path in root.iterdir() if not path.name.startswith(".")} == {"of mine", "linked"}


def test_sizes_of_finished_directories_are_measured_once(tmp_path: Path) -> None:
    path = directory(tmp_path / ("a" * 16))
    sizes = Sizes(tmp_path / "sizes.json")
    assert sizes.of(path, final=True) == 1000
    sizes.store()
    (path / "more").write_bytes(b"x")
    assert Sizes(tmp_path / "sizes.json").of(path, final=True) == 1000
    assert Sizes(tmp_path / "sizes.json").of(path, final=False) == 1001
    (tmp_path / "sizes.json").write_text("[")
    assert Sizes(tmp_path / "sizes.json").of(path, final=True) == 1001


def test_names_on_command_lines_of_processes_are_found(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cmdline").write_bytes(b"/x/" + b"a" * 16 + b"/bin/python\0-m\0" + b"b" * 32)
    (tmp_path / "self").mkdir()
    assert names_in_processes(tmp_path) == {"a" * 16}


def test_directories_are_measured_while_runs_can_start(
    mount: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(mount, "1" * 16, "program")
    (mount / "payloads" / f"{'2' * 16}.partial-1").mkdir()
    measured = list[str]()
    with database.transaction():
        pass  # This creates the database.

    def count(path: Path) -> tuple[int, int]:
        with contextlib.closing(sqlite3.connect(home / database.FILE, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
        measured.append(path.name)
        return count_files(path)

    monkeypatch.setattr(clean, "count_files", count)
    assert len(list_or_remove_shared(mount, home, frozenset())["items"]) == 2
    assert measured == ["1" * 16, f"{'2' * 16}.partial-1"]

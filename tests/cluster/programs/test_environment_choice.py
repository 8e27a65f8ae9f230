"""The environment of a program, chosen from its requirements and the nodes before anything is pushed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from agent.errors import SpecError
from agent.spec.node_kinds import RuntimeKind
from agent.spec.nodes import Node
from cluster.programs.environment_choice import kind_of_hosts, pack, pack_for_notebook
from cluster.programs.keras3_lint import KerasTrapError
from cluster.programs.python_environment import RUNTIME, Environment, Wanted
from cluster.programs.requirements_file import RequirementsError
from cluster.programs.requirements_resolver import Resolver
from cluster.programs.user_program import Program
from cluster.programs.uv_compile import UnresolvedHereError
from cluster.tasks.notebook import default_notebook
from tests.factories import make_master, make_node

PROJECT: Final = Path(__file__).resolve().parents[3]
HERE: Final = "x86_64-py3.12"
TRAP: Final = "import horovod.tensorflow.keras as hvd\nhvd.DistributedOptimizer(None)\n"


def nodes(*kinds: str, master: str = HERE) -> tuple[Node, ...]:
    return (make_master(kind=master), *(make_node(n, kind=kind) for n, kind in enumerate(kinds, start=1)))


def make_program(directory: Path, *, requirements: str = "numpy<2\n", script: str = "", keras: str = "") -> Program:
    (directory / "train.py").write_text(script)
    if requirements:
        (directory / "requirements.txt").write_text(requirements)
    return Program.from_arguments(str(directory), "train.py", (), keras=keras)


def test_environment_kind_comes_from_workers_or_else_from_the_master() -> None:
    assert kind_of_hosts(nodes(HERE, HERE, "x86_64-py3.13"), 2) == RuntimeKind(processor="x86_64", python="3.12")
    assert kind_of_hosts(nodes(master="aarch64-py3.11"), 2) == RuntimeKind(processor="aarch64", python="3.11")
    assert kind_of_hosts(nodes("x86_64-sm90-py3.12", "x86_64-sm80-py3.12"), 2) == RuntimeKind(
        processor="x86_64", has_gpus=True, capabilities=(80, 90), python="3.12"
    )


@pytest.mark.parametrize("found", [(), nodes("x86_64")])
def test_python_is_unknown_if_nodes_do_not_report_it(found: tuple[Node, ...]) -> None:
    assert kind_of_hosts(found, 2) is None


def test_workers_with_different_pythons_are_rejected_by_name() -> None:
    with pytest.raises(SpecError, match=r"worker1: x86_64 without GPUs, Python 3\.12; deeplearning-worker2"):
        kind_of_hosts(nodes(HERE, "x86_64-py3.11"), 2)


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """Resolve every program to a separate environment with Keras 2; return the list of requests."""
    asked: list[Wanted] = []

    def resolve(self: Resolver, wanted: Wanted) -> Environment:
        asked.append(wanted)
        return Environment(lock="numpy==1.26.4\n", horovod_for=("tensorflow",), keras=2, why="a test")

    monkeypatch.setattr(Resolver, "resolve", resolve)
    return asked


def test_programs_own_environment_is_reported_and_uploaded_with_its_tree(
    tmp_path: Path, resolved: list[Wanted]
) -> None:
    program, said = make_program(tmp_path, script=TRAP), list[str]()
    packed = pack(program, lambda: nodes(HERE), 1, "horovod", project=PROJECT, report=said.append)
    assert said == [
        "the program's own environment (a test): numpy 1.26.4, Horovod 0.28.1 for tensorflow; 1 package, "
        "0.0 MB to download"
    ]
    assert packed.tree == program.tree("numpy==1.26.4\n")
    assert packed.kind == RuntimeKind(processor="x86_64", python="3.12")
    assert resolved[0].horovod and resolved[0].requirements == "requirements.txt"


def test_requirements_of_a_notebook_are_locked_on_the_laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, asked = "jupyterlab==4.4.1\n", list[tuple[str, bool]]()

    def resolve(self: Resolver, wanted: Wanted) -> Environment:
        asked.append(((wanted.directory / wanted.requirements).read_text(), wanted.uses_torch))
        return Environment(lock=lock, over_runtime=True)

    monkeypatch.setattr(Resolver, "resolve", resolve)
    (other := tmp_path / "default").mkdir()
    own = make_program(tmp_path, requirements="jupyterlab\n", script="import horovod.torch\n")
    for program in (own, default_notebook(other)):
        packed = pack_for_notebook(program, nodes(HERE)[0], project=PROJECT, report=print)
        assert packed.tree == program.tree(lock)
    assert asked == [("jupyterlab\n", False), ("jupyterlab>=4,<5\n", False)]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (Environment(lock="jupyterlab==4.4.1\n", why="the runtime has numpy 2.4.6"), "runtime: the runtime has numpy"),
        (Environment(lock="einops==0.8\n", over_runtime=True), "does not name jupyterlab"),
    ],
)
def test_requirements_that_no_notebook_can_use_are_rejected_before_the_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Environment, says: str
) -> None:
    monkeypatch.setattr(Resolver, "resolve", lambda self, wanted: environment)
    with pytest.raises(RequirementsError, match=says):
        pack_for_notebook(make_program(tmp_path), nodes(HERE)[0], project=PROJECT, report=print)


def test_program_without_requirements_needs_no_index(tmp_path: Path, resolved: list[Wanted]) -> None:
    packed = pack(make_program(tmp_path, requirements=""), tuple, 1, "horovod", project=PROJECT, report=print)
    assert (packed.environment, packed.kind, resolved) == (RUNTIME, None, [])


def test_keras_3_trap_is_rejected_in_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resolver, "resolve", lambda self, wanted: RUNTIME)
    program, said = make_program(tmp_path, script=TRAP), list[str]()
    with pytest.raises(KerasTrapError):
        pack(program, lambda: nodes(HERE), 1, "horovod", project=PROJECT, report=said.append)
    bears = make_program(tmp_path, script=TRAP, keras="3")
    pack(bears, lambda: nodes(HERE), 1, "horovod", project=PROJECT, report=said.append)
    assert said[0].startswith("Keras 3: train.py:2: hvd.DistributedOptimizer")


def test_nothing_starts_without_package_index_on_laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(self: Resolver, wanted: Wanted) -> Environment:
        raise UnresolvedHereError("this machine cannot reach a package index: u: refused")

    monkeypatch.setattr(Resolver, "resolve", unreachable)
    with pytest.raises(UnresolvedHereError, match="cannot reach a package index"):
        pack(make_program(tmp_path), lambda: nodes(HERE), 1, "horovod", project=PROJECT, report=print)


def test_nodes_of_unknown_python_are_reported(tmp_path: Path, resolved: list[Wanted]) -> None:
    with pytest.raises(RequirementsError, match="no node has reported the version of its Python"):
        pack(make_program(tmp_path), lambda: nodes("x86_64"), 1, "horovod", project=PROJECT, report=print)
    assert resolved == []


@pytest.mark.parametrize(
    ("modules", "horovod", "uses"),
    [
        (set(), True, (False, True)),
        ({"tensorflow.keras"}, True, (False, True)),
        ({"horovod.torch", "torch"}, True, (True, False)),
        ({"horovod.torch.elastic", "keras"}, True, (True, True)),
        ({"horovod.torches"}, True, (False, True)),
        ({"horovod.torch", "tensorflow"}, False, (False, False)),
    ],
)
def test_horovod_framework_is_detected_from_imports(modules: set[str], horovod: bool, uses: tuple[bool, bool]) -> None:
    wanted = Wanted(directory=Path(), requirements="", modules=frozenset(modules), horovod=horovod)
    assert (wanted.uses_torch, wanted.uses_tensorflow) == uses

"""Facts about the state of a program of one's own in an elastic run: it stays, whatever ranks are lost and join."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from agent.launch.elastic.program import deepcdk_elastic
from agent.launch.elastic.program.deepcdk_elastic import State
from agent.spec.nodes import LEAVING
from tests.payload.training.elastic.local_run import ROOT, LocalRun, hosts
from tests.waiting import eventually

STEPS: Final = 2000
"""Of which each lasts, until a test has seen what it waits for."""
PROGRAM: Final = f"""\
import enum, json, os, pathlib, time
import deepcdk_elastic
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
import agent

STEPS = {STEPS}
inputs = np.random.default_rng(0).normal(size=(60, 8))
targets = inputs @ np.arange(8.0)
# What a rank begins with counts on rank 0 alone.
wrong = float(os.environ.get("DEEPCDK_MEMBER", "0"))
state = deepcdk_elastic.State(hvd, step=0, weights=np.full(8, wrong), count=tf.Variable(wrong), sizes=[], phase=None)


class Phase(enum.Enum):
    EARLY, LATE = 1, 2


state.phase = Phase.EARLY if not wrong else None
quick = pathlib.Path("quick")


def train(state):
    share = slice(hvd.rank(), None, hvd.size())
    while state.step < STEPS:
        error = inputs[share] @ state.weights - targets[share]
        gradient = hvd.allreduce(tf.constant(inputs[share].T @ error), op=hvd.Sum).numpy() / len(inputs)
        state.weights -= 0.0005 * gradient  # in its place: what was kept must not change with it
        state.count.assign_add(1.0)
        state.sizes.append(hvd.size())
        state.step += 1
        if not quick.exists():
            time.sleep(0.05)
        assert state.phase is Phase.EARLY, "classes are the program's own on all ranks"
        state.commit()
        if hvd.rank() == 0:
            with open("steps.txt", "a") as file:
                file.write(f"{{state.step}}\\n")
    return agent.ANSWER


answer = state.run(train)
if hvd.rank() == 0:
    found = {{"answer": answer, "count": float(state.count.numpy()), "sizes": state.sizes, "step": state.step}}
    with open("found.json", "w") as file:
        json.dump({{**found, "weights": list(state.weights)}}, file)
"""
ENVIRONMENT: Final = (("TF_CPP_MIN_LOG_LEVEL", "2"),)


def expected() -> Any:
    """Return the weights that one process computes."""
    inputs, weights = np.random.default_rng(0).normal(size=(60, 8)), np.zeros(8)
    for _ in range(STEPS):
        weights = weights - 0.0005 * inputs.T @ (inputs @ weights - inputs @ np.arange(8.0)) / len(inputs)
    return weights


@pytest.fixture
def run(tmp_path: Path) -> LocalRun:
    found = LocalRun.lay_out(tmp_path, program=PROGRAM)
    (found.directory / "work" / "agent.py").write_text("ANSWER = 42  # its name is that of deepcdk's own\n")
    return found


def steps(run: LocalRun) -> int:
    path = run.directory / "work" / "steps.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def check(run: LocalRun, launcher: subprocess.Popen[str], sizes: list[int]) -> None:
    """Check that a run ends well, with what one process computes, and had so many ranks in turn."""
    (run.directory / "work" / "quick").touch()
    log, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, log[-6000:]
    found = json.loads((run.directory / "work" / "found.json").read_text())
    np.testing.assert_allclose(found["weights"], expected(), rtol=1e-9)
    assert (found["step"], found["count"], found["answer"]) == (STEPS, STEPS, 42)
    assert len(found["sizes"]) == STEPS, "each step counts once"
    assert [size for n, size in enumerate(found["sizes"]) if not n or found["sizes"][n - 1] != size] == sizes


@pytest.mark.horovod
@pytest.mark.root
@pytest.mark.timeout(1200)
def test_a_program_goes_on_where_rank_0_is_killed_and_a_host_joins_it(run: LocalRun) -> None:
    with run.started() as launcher:
        eventually(lambda: steps(run) > 10)
        run.kill(0)
        eventually(lambda: len(run.reformed()) == 1)
        run.offer((*run.spec.hosts[1:], *hosts(4)[3:]))
        eventually(lambda: len(run.reformed()) == 2)
        check(run, launcher, [3, 2, 3])
    lost, joined = run.reformed()
    assert (lost["lost"], lost["ranks"]) == (["deeplearning-worker1"], 2)
    assert lost["steps_lost"] in (0, 1) and 0 < lost["seconds"] < 60
    assert (joined["joined"], joined["steps_lost"], joined["ranks"]) == (["deeplearning-worker4"], 0, 3)
    assert lost["step"] < joined["step"] <= STEPS


@pytest.mark.horovod
@pytest.mark.root
@pytest.mark.timeout(1200)
def test_a_rank_whose_node_is_about_to_end_leaves_between_two_commits(run: LocalRun) -> None:
    notice = run.efs / LEAVING / run.spec.hosts[2].instance_id
    notice.parent.mkdir(parents=True)
    with run.started() as launcher:
        eventually(lambda: steps(run) > 5)
        notice.touch()
        run.kill(2, signal.SIGTERM)
        before = steps(run)
        eventually(lambda: steps(run) > before + 5)
        assert 2 in run.pids(), "it goes on until the others can do without it"
        run.offer(run.spec.hosts[:2])
        check(run, launcher, [3, 2])
    (left,) = run.reformed()
    assert (left["lost"], left["steps_lost"]) == (["deeplearning-worker3"], 0)


@pytest.mark.horovod
def test_without_a_launcher_it_runs_once(run: LocalRun) -> None:
    (run.directory / "work" / "quick").touch()
    work, folder = run.directory / "work", ROOT / "agent/launch/elastic/program"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), **dict(ENVIRONMENT)}
    subprocess.run([sys.executable, "train.py"], cwd=work, env=environment, check=True, timeout=300)
    found = json.loads((work / "found.json").read_text())
    np.testing.assert_allclose(found["weights"], expected(), rtol=1e-9)
    assert found["sizes"] == [1] * STEPS


class Module:
    """As a module of PyTorch."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def state_dict(self) -> dict[str, Any]:
        return self.values

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.values = values


class Variable:
    """As a variable of TensorFlow."""

    def __init__(self, *values: float) -> None:
        self.array = np.array(values)

    def numpy(self) -> Any:
        return self.array

    def assign(self, array: Any) -> None:
        self.array = np.array(array)


class Model:
    """As a model of Keras 3, or an optimizer of Keras 2, whose variables a call returns."""

    def __init__(self, *variables: Variable, is_call: bool = False) -> None:
        self.variables: Any = (lambda: list(variables)) if is_call else list(variables)


class Ranks:
    """As Horovod with this rank and another one, which has come further once it is told so."""

    __name__ = "horovod.tensorflow"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, commits: int = -1, **values: Any) -> None:
        self.commits = [-1, commits]
        others = pickle.dumps((commits, values))
        monkeypatch.setattr(deepcdk_elastic, "_broadcast", lambda hvd, mine, source: others if source else mine)

    def init(self) -> None:
        pass

    def rank(self) -> int:
        return 0

    def allgather_object(self, value: Any, name: str) -> list[Any]:
        return self.commits


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide any launcher from `run`, and check that the agent's modules are as before."""
    monkeypatch.delenv("DEEPCDK_ELASTIC", raising=False)
    before = dict(sys.modules)
    yield
    assert {name: sys.modules.get(name) for name in before if name.startswith("agent")} == {
        name: module for name, module in before.items() if name.startswith("agent")
    }


def test_every_kind_of_value_is_kept_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    module, variable = Module(weight=[1.0]), Variable(1.0, 2.0)
    models = [Model(Variable(3.0)), Model(Variable(4.0), is_call=True)]
    ranks = Ranks(monkeypatch)
    state = State(ranks, step=3, list=[1], module=module, variable=variable, first=models[0], second=models[1])
    state.run(lambda state: None)
    kept = state._kept
    state.list.append(2)
    module.values["weight"].append(2.0)
    variable.array += 1.0
    models[0].variables[0].array += 1.0
    models[1].variables()[0].array += 1.0
    state.step = 4
    for name, each in kept.items():
        deepcdk_elastic._restore(state, name, each)
    assert (state.step, state.list, module.values) == (3, [1], {"weight": [1.0]})
    assert variable.array.tolist() == [1.0, 2.0]
    assert [models[0].variables[0].array.item(), models[1].variables()[0].array.item()] == [3.0, 4.0]


def test_a_rank_takes_over_what_another_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert State(Ranks(monkeypatch, commits=7, step=70), step=0).run(lambda state: state.step) == 70


def test_an_optimizer_that_is_not_built_yet_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    further = Ranks(monkeypatch, commits=7, optimizer=[np.zeros(1), np.zeros(2)])
    with pytest.raises(ValueError, match=r"optimizer has 1 variables on this rank, and 2 on another: build it before"):
        State(further, optimizer=Model(Variable(0.0))).run(lambda state: None)
    with pytest.raises(ValueError, match=r"optimizer has no variables yet: build it before `run`"):
        State(Ranks(monkeypatch), optimizer=Model()).run(lambda state: None)
    grown = Model(Variable(0.0))
    state = State(Ranks(monkeypatch), optimizer=grown)
    state.run(lambda state: grown.variables.append(Variable(1.0)))
    with pytest.raises(ValueError, match=r"optimizer had 1 variables, and has 2 now: build it before `run`"):
        state._keep()


@pytest.mark.parametrize("name", ["run", "commit", "_kept"])
def test_a_value_cannot_have_a_name_of_the_class(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' cannot be the name of a value"):
        State(Ranks(monkeypatch), **{name: 1})


def test_a_value_that_would_not_be_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(Ranks(monkeypatch), step=0, weights=[])
    with pytest.raises(AttributeError, match=r"'best' was not given to State\(step, weights\), which would not"):
        state.best = 0.9


def test_an_error_of_the_program_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(state: State) -> None:
        raise OSError("Connection reset by peer")

    with pytest.raises(OSError, match="reset by peer"):
        State(Ranks(monkeypatch), step=0).run(fails)

"""Facts about the measurement of a program's first steps: what is timed, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.launch.keras3_guard.deepcdk_first_steps import MEASURED, SKIPPED, FirstSteps

PROJECT = Path(__file__).resolve().parents[3]
ENOUGH = SKIPPED + MEASURED + 1


class Program:
    """Stand in for TensorFlow's functions and Horovod, with a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        class Function:
            def __init__(self, body: Callable[..., object]) -> None:
                self.body = body

            def __call__(self, /, *args: object, **kwargs: object) -> object:
                return self.body(*args, **kwargs)

        self.now = 0.0
        self.function = Function
        self.original = Function.__call__
        self.horovod = types.SimpleNamespace(_allreduce=lambda value: value, _grouped_allreduce=lambda *values: values)
        self.path = path
        monkeypatch.setattr("time.perf_counter", lambda: self.now)
        FirstSteps(str(path)).watch(self.horovod, Function)

    def reduce(self, value: int = 1) -> int:
        """Add up, as a step does while it is traced; take 50 ms, the first time 9 s."""
        self.now += 0.05 if self.now else 9
        return self.horovod._allreduce(value)  # type: ignore[no-any-return]

    @property
    def step_ms(self) -> float | None:
        return json.loads(self.path.read_text())["step_ms"] if self.path.exists() else None


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path / "first-steps" / "a.json")


def test_a_step_is_the_time_between_calls_of_the_function_that_adds_up_and_then_all_is_as_before(
    program: Program,
) -> None:
    step, other = program.function(program.reduce), program.function(lambda: 2)
    for number in range(ENOUGH + 1):
        assert program.step_ms is None, number
        assert (step(), other()) == (1, 2)
        program.now += 0.02
    assert program.step_ms == 70
    assert program.function.__call__ is program.original
    assert program.horovod._allreduce.__qualname__.endswith("<lambda>")
    assert [path.name for path in program.path.parent.iterdir()] == ["a.json"]


def test_a_reduction_in_a_function_within_counts_for_the_outermost(program: Program) -> None:
    inner = program.function(program.reduce)
    outer = program.function(lambda: [inner(), inner()])
    for _ in range(ENOUGH + 1):
        outer()
    assert program.step_ms == 100


def test_of_several_functions_that_add_up_the_one_called_most_is_the_step(program: Program) -> None:
    evaluation, step = program.function(lambda: program.reduce(2)), program.function(program.reduce)
    evaluation()
    for _ in range(ENOUGH + 1):
        step()
    assert program.step_ms == 50


def test_functions_without_a_reduction_and_those_of_other_threads_are_not_timed(program: Program) -> None:
    step, other = program.function(program.reduce), program.function(lambda: 2)
    for _ in range(2 * ENOUGH):
        other()
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
    assert program.step_ms is None


def test_arguments_of_any_name_reach_a_step(program: Program) -> None:
    step = program.function(lambda *args, **kwargs: (args, kwargs))
    assert step(1, function=2, self=3) == ((1,), {"function": 2, "self": 3})


def test_an_error_of_a_step_is_the_programs_own(program: Program) -> None:
    step = program.function(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        step()
    program.reduce()  # outside of any function: the failed one is not under way any more
    for _ in range(ENOUGH + 1):
        with pytest.raises(ZeroDivisionError):
            step()
    assert program.step_ms is None


def test_a_file_system_that_refuses_costs_the_program_nothing(program: Program) -> None:
    program.path.parent.write_text("a file where the folder is to be")
    step = program.function(program.reduce)
    for _ in range(ENOUGH + 1):
        step()
    assert program.function.__call__ is program.original


@pytest.mark.parametrize("rank", ["0", "1"])
def test_python_installs_it_for_rank_0_alone(tmp_path: Path, rank: str) -> None:
    reductions = "_allreduce = _grouped_allreduce = lambda value: value"
    done, record = run_stand_in(tmp_path, reductions, rank)
    assert (done.stdout, done.stderr) == (f"{ENOUGH + 1}\n", "")
    assert record.exists() == (rank == "0")
    if rank == "0":
        found = json.loads(record.read_text())
        assert 0 <= found["step_ms"] < 1000
        assert found["run"] == "a-run"


def test_a_horovod_that_is_not_as_expected_is_left_alone(tmp_path: Path) -> None:
    done, record = run_stand_in(tmp_path, "_allreduce = lambda value: value", "0")
    assert (done.stdout, done.stderr) == (f"{ENOUGH + 1}\n", "")
    assert not record.exists()


def run_stand_in(folder: Path, reductions: str, rank: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run a program over stand-ins for Horovod and TensorFlow; return how it ended, and where its record is to be."""
    for name, text in {
        "horovod/__init__.py": "",
        "horovod/tensorflow/__init__.py": reductions,
        "tensorflow.py": "class function:\n"
        "    def __init__(self, f): self.f = f\n"
        "    def __call__(self): return self.f()",
        "program.py": "import horovod.tensorflow as hvd, tensorflow as tf\n"
        "step = tf.function(lambda: hvd._allreduce(1))\n"
        f"print(sum(step() for _ in range({ENOUGH + 1})))",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    record = folder / "first-steps" / "a.json"
    guard = PROJECT / "agent" / "launch" / "keras3_guard"
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{guard}:{folder}",
        "HOROVOD_RANK": rank,
        "DEEPCDK_FIRST_STEPS": str(record),
        "DEEPCDK_RUN": "a-run",
    }
    command = [sys.executable, str(folder / "program.py")]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False), record


@pytest.mark.tensorflow
@pytest.mark.parametrize("compiled", [True, False])
def test_a_program_that_is_measured_computes_the_same_bits(tmp_path: Path, compiled: bool) -> None:
    (tmp_path / "program.py").write_text(TRAINING)
    record = tmp_path / "a.json"

    def weights(**variables: str) -> str:
        environ = {"PATH": os.environ["PATH"], "TF_CPP_MIN_LOG_LEVEL": "3", "HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}
        environ["PYTHONPATH"] = str(PROJECT / "agent" / "launch" / "keras3_guard")
        command = [sys.executable, str(tmp_path / "program.py"), "compiled" if compiled else "eager"]
        done = subprocess.run(
            command, env=environ | variables, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert "AutoGraph could not" not in done.stderr
        return done.stdout

    plain = weights()
    assert plain.startswith("weights ")
    assert weights(DEEPCDK_FIRST_STEPS=str(record)) == plain
    assert json.loads(record.read_text())["step_ms"] > 0


TRAINING = f"""\
import hashlib, sys
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
tf.random.set_seed(1)
weights = tf.Variable(tf.random.stateless_normal((64, 8), (1, 2)))
inputs, targets = tf.random.stateless_normal((32, 64), (3, 4)), tf.random.stateless_normal((32, 8), (5, 6))

def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((inputs @ weights - targets) ** 2)
    (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
    weights.assign_sub(0.1 * gradient)
    return loss

run = tf.function(step) if sys.argv[1] == "compiled" else step
for _ in range({ENOUGH + 3}):
    run()
print("weights", hashlib.sha256(weights.numpy().tobytes()).hexdigest())
"""

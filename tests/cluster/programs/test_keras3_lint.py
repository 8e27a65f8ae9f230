"""Finding Keras 3 bugs in a program's source, whatever names it imports Horovod's modules under."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.programs.keras3_lint import KerasTrapError, find
from cluster.programs.user_program import Program


def traps(directory: Path, source: str) -> list[tuple[int, str]]:
    (directory / "train.py").write_text(source)
    return [(trap.line, trap.name) for trap in find(directory, directory / "train.py")]


@pytest.mark.parametrize(
    "imported",
    [
        "import horovod.tensorflow.keras as hvd",
        "import horovod.keras as hvd",
        "import horovod.tensorflow as hvd",
        "from horovod.tensorflow import keras as hvd",
    ],
)
def test_wrapped_optimizer_is_found_under_every_name(tmp_path: Path, imported: str) -> None:
    assert traps(tmp_path, f"{imported}\nopt = hvd.DistributedOptimizer(opt)\n") == [(2, "DistributedOptimizer")]


def test_other_traps_are_found(tmp_path: Path) -> None:
    source = (
        "import horovod.tensorflow.keras as hvd\n"
        "hvd.callbacks.LearningRateWarmupCallback(1)\n"
        "hvd.elastic.KerasState(m)\n"
        "hvd.callbacks.MetricAverageCallback()\n"
        "hvd.callbacks.LearningRateScheduleCallback(1)\n"
        "hvd.elastic.TensorFlowKerasState(m)\n"
        "hvd.DistributedGradientTape(t)\n"
    )
    (tmp_path / "train.py").write_text(source)
    assert [str(trap) for trap in find(tmp_path, tmp_path / "train.py")] == [
        "train.py:2: hvd.callbacks.LearningRateWarmupCallback fails under Keras 3",
        "train.py:3: hvd.elastic.KerasState fails under Keras 3",
        "train.py:5: hvd.callbacks.LearningRateScheduleCallback fails under Keras 3",
        "train.py:6: hvd.elastic.TensorFlowKerasState fails under Keras 3",
        "train.py:7: hvd.DistributedGradientTape fails under Keras 3 for the variables of a model; "
        "use [v.value for v in ...]",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "import horovod.torch as hvd\nhvd.DistributedOptimizer(o)\n",
        "class hvd: pass\nhvd.DistributedOptimizer = 3\n",
        "# import horovod.keras as hvd; hvd.DistributedOptimizer\n",
        "import horovod.tensorflow as hvd\nhvd.allreduce(x)\n",
        "import horovod.tensorflow as hvd\nhvd().DistributedOptimizer(o)\nhvdx.DistributedOptimizer(o)\n",
    ],
)
def test_correct_code_is_not_reported_as_a_trap(tmp_path: Path, source: str) -> None:
    assert traps(tmp_path, source) == []


def test_program_that_trains_wrongly_is_rejected_unless_keras_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import horovod.keras as hvd\nhvd.DistributedOptimizer(o)\n")
    with pytest.raises(KerasTrapError, match=r"train\.py:2: .*does not average") as caught:
        Program.from_arguments(str(tmp_path), "train.py", ())
    assert [trap.line for trap in caught.value.traps] == [2]
    assert str(caught.value).startswith("this program would train incorrectly:\n  train.py:2: hvd.DistributedOptimizer")
    assert caught.value.remedy == (
        "give --keras 2 (tf.keras and keras are then Keras 2). If the program does not run this code, give --keras 3; "
        "it is stopped if it does run it"
    )
    assert Program.from_arguments(str(tmp_path), "train.py", (), keras="2").keras_traps() == []
    assert len(Program.from_arguments(str(tmp_path), "train.py", (), keras="3").keras_traps()) == 1


def test_program_that_would_fail_with_an_error_only_gets_a_warning(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import horovod.tensorflow as hvd\nhvd.DistributedGradientTape(t)\n")
    assert [t.name for t in Program.from_arguments(str(tmp_path), "train.py", ()).keras_traps()] == [
        "DistributedGradientTape"
    ]


@pytest.mark.parametrize(
    ("file", "imported"),
    [
        ("built.py", "import built"),
        ("lib/__init__.py", "from lib import make"),
        ("lib/built.py", "from lib.built import make"),
        ("lib/built.py", "import lib.built as b"),
    ],
)
def test_trap_in_module_is_found_with_any_import_form(tmp_path: Path, file: str, imported: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("import horovod.keras as h\nh.DistributedOptimizer(1)\n")
    (tmp_path / "unused.py").write_text("import horovod.keras as h\nh.DistributedOptimizer(1)\n")
    (tmp_path / "train.py").write_text(f"{imported}\nimport train\n")
    assert [(trap.file, trap.line) for trap in find(tmp_path, tmp_path / "train.py")] == [(file, 2)]


@pytest.mark.parametrize("imported", ["from . import optimizer", "import optimizer"])
def test_imported_modules_are_read_and_invalid_ones_skipped(imported: str, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text(f"import broken\n{imported}\nimport broken2\n")
    (tmp_path / "lib" / "optimizer.py").write_text("import horovod.keras as h\nh.DistributedOptimizer(1)\n")
    (tmp_path / "broken.py").write_text("def\n")
    (tmp_path / "broken2.py").write_text("def\n")
    (tmp_path / "train.py").write_text("import lib\n")
    assert [str(trap).partition(" ")[0] for trap in find(tmp_path, tmp_path / "train.py")] == ["lib/optimizer.py:2:"]

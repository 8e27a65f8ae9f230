"""The hooks in a user's program: Keras 3's silent bug is an error, its errors are explained, imports are faster."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent.launch.program_hooks.sitecustomize import explain

PROJECT = Path(__file__).resolve().parents[3]


def run(
    tmp_path: Path, program: str, *, rank: str = "HOROVOD_RANK", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as a rank, with the fake packages that the test created, if any. `rank` is the variable with its
    number.
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    path = os.pathsep.join([str(PROJECT / "agent" / "launch" / "program_hooks"), str(tmp_path)])
    return subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": path,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            rank: "0",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('File "/x/horovod/_keras/callbacks.py", line 147\nAttributeError: no attribute', "requires Keras 2"),
        (
            "TypeError: compile() got an unexpected keyword argument 'experimental_run_tf_function'",
            "compile() of Keras 3",
        ),
        (
            "    hvd.broadcast_variables(opt.variables(), root_rank=0)\nTypeError: not callable",
            "is a property, not a method",
        ),
        ("ValueError: shapes do not match", ""),
        ("KerasTrapError: ... File horovod/_keras/__init__.py", ""),
    ],
)
def test_keras_3_errors_are_recognized_by_text(text: str, says: str) -> None:
    assert says in explain(text)
    assert bool(explain(text)) == bool(says)


def test_known_error_is_followed_by_fix(tmp_path: Path) -> None:
    done = run(tmp_path, "raise AttributeError(\"'Variable' object has no attribute 'ref'\")")
    assert done.returncode == 1
    assert done.stderr.index("Traceback") < done.stderr.index("deepcdk:") < done.stderr.index("--keras 2")


@pytest.mark.parametrize("rank", ["HOROVOD_RANK", "RANK"])
def test_all_keras_names_refer_to_keras_2_if_selected(tmp_path: Path, rank: str) -> None:
    (tmp_path / "tf_keras" / "src").mkdir(parents=True)
    (tmp_path / "tf_keras" / "__init__.py").write_text("VERSION = 2\n")
    (tmp_path / "tf_keras" / "src" / "__init__.py").touch()
    (tmp_path / "tf_keras" / "src" / "backend.py").write_text("def get_value(): return 7\n")
    program = """
        import keras, tf_keras
        import keras.src.backend as K
        from keras.src import backend
        print(keras.VERSION, keras is tf_keras, K.get_value(), backend is K)
        """
    done = run(tmp_path, program, rank=rank, TF_USE_LEGACY_KERAS="1")
    assert done.stdout == "2 True 7 True\n", done.stderr


def test_check_does_nothing_outside_of_a_rank(tmp_path: Path) -> None:
    done = run(tmp_path, "import sys; print(sys.excepthook is sys.__excepthook__)", HOROVOD_RANK="")
    assert done.stdout == "False\n"
    (tmp_path / "program.py").write_text("import sys; print(sys.excepthook is sys.__excepthook__)")
    plain = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT / "agent" / "launch" / "program_hooks")}
    alone = subprocess.run(
        [sys.executable, tmp_path / "program.py"], env=plain, capture_output=True, text=True, check=True
    )
    assert alone.stdout == "True\n"


@pytest.mark.parametrize("rank", ["HOROVOD_RANK", "RANK", "OTHER"])
@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_framework_is_imported_without_garbage_collection_by_ranks(tmp_path: Path, framework: str, rank: str) -> None:
    (tmp_path / f"{framework}.py").write_text("import gc\nprint(gc.isenabled())\n")
    program = f"import gc\nfrozen = gc.get_freeze_count()\nimport {framework}\n"
    program += "print(gc.isenabled(), gc.get_freeze_count() > frozen)"
    is_rank = rank != "OTHER"
    assert run(tmp_path, program, rank=rank).stdout == f"{not is_rank}\nTrue {is_rank}\n"


@pytest.mark.parametrize(
    ("before", "during", "after"),
    [("gc.disable()", False, "False True"), ("kept = [[] for _ in range(300_000)]", True, "True True")],
    ids=["disabled by the program", "many objects"],
)
def test_garbage_collection_of_a_program_is_not_changed(tmp_path: Path, before: str, during: bool, after: str) -> None:
    (tmp_path / "torch.py").write_text("import gc\nprint(gc.isenabled())\n")
    program = f"import gc\nfrozen = gc.get_freeze_count()\n{before}\nimport torch\n"
    program += "print(gc.isenabled(), gc.get_freeze_count() == frozen)"
    assert run(tmp_path, program).stdout == f"{during}\n{after}\n"


def test_objects_of_a_program_are_collected_if_it_imports_a_second_framework_later(tmp_path: Path) -> None:
    for framework in ("torch", "tensorflow"):
        (tmp_path / f"{framework}.py").touch()
    program = """
        import gc, torch, weakref
        class Model: pass
        model = Model()
        model.own, model_is_there = model, weakref.ref(model)
        import tensorflow
        del model
        gc.collect()
        print(model_is_there(), gc.isenabled())
        """
    assert run(tmp_path, program).stdout == "None True\n"


def test_garbage_is_collected_after_a_failed_import(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no libtorch.so')\n")
    program = """
        import gc
        try:
            import torch
        except ImportError as error:
            print(error, gc.isenabled())
        """
    assert run(tmp_path, program).stdout == "no libtorch.so True\n"


@pytest.mark.full
@pytest.mark.horovod
def test_wrapping_an_optimizer_of_keras_3_is_an_error(tmp_path: Path) -> None:
    program = """
        import keras
        import horovod.tensorflow.keras as hvd
        hvd.init()
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        print("went on")
        """
    done = run(tmp_path, program)
    assert (done.returncode, done.stdout) == (1, "")
    assert "silently averages nothing" in done.stderr
    assert "--keras 2" in done.stderr


@pytest.mark.parametrize(("version", "status"), [("2.15.0", 0), ("3.15.1", 1)])
def test_keras_2_under_its_own_name_is_recognized_by_its_version(tmp_path: Path, version: str, status: int) -> None:
    for package in ("keras", "horovod", "horovod/_keras"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "keras" / "__init__.py").write_text(f"__version__ = '{version}'\nclass SGD: pass\n")
    (tmp_path / "horovod" / "_keras" / "__init__.py").write_text(
        "def create_distributed_optimizer(keras, optimizer): return 'wrapped'\n"
    )
    program = """
        import keras
        from horovod import _keras
        print(_keras.create_distributed_optimizer(keras, keras.SGD()))
        raise ValueError("horovod/_keras/")
        """
    done = run(tmp_path, program)
    assert done.returncode == 1
    assert (done.stdout, "--keras 2" in done.stderr) == (("wrapped\n", False) if status == 0 else ("", True))

"""Facts about what a program asks of its environment, and how an environment is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.programs.program_packages import RUNTIME, Environment, Wanted, pinned


def test_pins_are_read_with_local_versions() -> None:
    assert pinned("torch==2.13.0+cpu \\\n    --hash=sha256:aa\nnumpy==1.26.4\n") == {
        "torch": "2.13.0+cpu",
        "numpy": "1.26.4",
    }


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
def test_the_imports_say_which_framework_horovod_is_for(
    modules: set[str], horovod: bool, uses: tuple[bool, bool]
) -> None:
    wanted = Wanted(directory=Path(), requirements="", modules=frozenset(modules), horovod=horovod)
    assert (wanted.uses_torch, wanted.uses_tensorflow) == uses


def test_an_environment_is_told_by_its_frameworks_and_the_runtime_by_having_no_lock() -> None:
    own = Environment(lock="torch==2.13.0\nnumpy==2.4.6\nidna==3.1\n", horovod_for=("torch",), why="it imports torch")
    assert (own.own, RUNTIME.own, RUNTIME.packages) == (True, False, {})
    text = str(own)
    assert text.startswith(
        "an environment of the program's own (it imports torch): torch 2.13.0, numpy 2.4.6, Horovod "
    )
    assert text.endswith(" for torch; 3 packages")

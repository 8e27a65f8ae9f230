"""Versions of TensorFlow and Keras that Horovod supports."""

from __future__ import annotations

from typing import Final

from agent.spec.frameworks import FIRST_TENSORFLOW, HOROVOD_VERSION, LAST_TENSORFLOW, TENSORFLOW, TENSORFLOW_PACKAGES
from agent.spec.node_kinds import RuntimeKind
from cluster.programs.python_environment import Wanted
from cluster.programs.requirements_file import RequirementsError

KERAS_2: Final = "tf-keras"
FIRST_WITH_KERAS_3: Final = (2, 16)
ONE_TENSORFLOW: Final = TENSORFLOW_PACKAGES[:2]
"""Two names of the same package. Both install the same files, so the later one overwrites the other."""


def check_tensorflow(version: str, wanted: Wanted) -> None:
    """Raise RequirementsError for a TensorFlow version that Horovod is not known to support."""
    if not FIRST_TENSORFLOW <= _numbers(version) <= LAST_TENSORFLOW:
        first, last = (".".join(map(str, pair)) for pair in (FIRST_TENSORFLOW, LAST_TENSORFLOW))
        raise RequirementsError(
            f"{wanted.label} requires TensorFlow {version}, but Horovod {HOROVOD_VERSION} is built for {first} to "
            f"{last}",
            remedy=f"require one of these versions, such as tensorflow-cpu=={last}.*, or give --launcher plain",
        )


def tensorflow_root(kind: RuntimeKind) -> str:
    """Return a requirement line for TensorFlow on hosts of a kind, such as `tensorflow-cpu>=2.15,<2.22`.

    It is limited to versions that Horovod is built for.
    """
    package = TENSORFLOW_PACKAGES[0] if kind.processor == "x86_64" else TENSORFLOW
    if kind.has_gpus:
        package = f"{TENSORFLOW}[and-cuda]"
    first, last = FIRST_TENSORFLOW, LAST_TENSORFLOW
    return f"{package}>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"


def has_keras_2(tensorflow: str) -> bool:
    """Return whether this version of TensorFlow contains Keras 2."""
    return _numbers(tensorflow) < FIRST_WITH_KERAS_3


def keras_2(tensorflow: str) -> str:
    """Return a requirement line for the Keras 2 that fits this version of TensorFlow, such as `tf-keras==2.17.*`."""
    return f"{KERAS_2}=={'.'.join(tensorflow.split('.')[:2])}.*"


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)

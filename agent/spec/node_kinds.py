"""Kinds of nodes: the processor, the GPUs' compute capability, and the Python version that programs are built for.

A node registers its kind as one word: `x86_64-py3.12`, `aarch64-py3.12`, `x86_64-sm90-py3.12` for GPUs of compute
capability 9.0, or `x86_64-gpu-py3.12` for GPUs with an unknown capability. The hosts of a run share one environment, so
they must have compatible kinds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Final

from agent.errors import SpecError

PATTERN: Final = "(x86_64|aarch64)(-gpu|-sm[1-9][0-9]{1,2})?(-py3[.][1-9][0-9]?)?"
WORDS: Final = "x86_64 or aarch64, then -smNN or -gpu for GPUs, then the Python version, for example x86_64-sm90-py3.12"
X86_64: Final = "x86_64"
FIRST_SUPPORTED: Final = 75
"""The oldest compute capability, multiplied by ten, that the runtime's cuDNN supports; as in `stacks/gpus.py`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeKind:
    """The kind of one node."""

    processor: str
    """The kernel's name for it: x86_64 or aarch64."""
    has_gpus: bool = False
    capability: int | None = None
    """Compute capability of the GPUs, multiplied by ten, as 90; None without GPUs, or if it is unknown."""
    python: str = ""
    """Python version that environments are made with, as 3.12; empty if unknown."""

    @classmethod
    def parse(cls, text: str) -> NodeKind:
        """Parse the word that a node registers. Raises SpecError if it is invalid."""
        found = re.fullmatch(PATTERN, text)
        if found is None:
            raise SpecError(f"kind = {ascii(text)[:60]}: must be {WORDS}")
        gpus = found[2] or ""
        capability = int(gpus.removeprefix("-sm")) if gpus.startswith("-sm") else None
        python = (found[3] or "").removeprefix("-py")
        return cls(processor=found[1], has_gpus=bool(gpus), capability=capability, python=python)

    def __str__(self) -> str:
        """Return the word that a node registers."""
        gpus = "-gpu" if self.capability is None else f"-sm{self.capability}"
        return f"{self.processor}{gpus * self.has_gpus}" + (f"-py{self.python}" if self.python else "")

    @property
    def words(self) -> str:
        """Return a description for messages, without the capability, such as `x86_64 with GPUs, Python 3.12`."""
        gpus = "with GPUs" if self.has_gpus else "without GPUs"
        return f"{self.processor} {gpus}" + (f", Python {self.python}" if self.python else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeKind:
    """What an environment is built for: the common kind of all hosts of a run."""

    processor: str
    has_gpus: bool = False
    capabilities: tuple[int, ...] = ()
    """Compute capabilities of all hosts' GPUs, multiplied by ten, ascending."""
    python: str = ""
    """Python version of all hosts, as 3.12; empty if unknown."""

    @property
    def operations(self) -> str:
        """Return the value of --operations for `agent.environment.horovod_build`: cpu or gpu."""
        return "gpu" if self.has_gpus else "cpu"

    def __str__(self) -> str:
        """Return the kind as one word, like a node's registration: `x86_64-sm80-sm90-py3.12`."""
        python = [f"py{self.python}"] if self.python else []
        return "-".join([self.processor, *(f"sm{capability}" for capability in self.capabilities), *python])


def runtime_kind(parsed: Mapping[str, NodeKind]) -> RuntimeKind:
    """Return the kind of environment for one or more nodes, given by name.

    Raises SpecError with the nodes' names if their processors or Python versions differ, or only some have GPUs. Also
    raises it for GPUs on aarch64 or with an unknown compute capability. Known capabilities may differ.
    """
    _check_one_kind(parsed)
    first = next(iter(parsed.values()))
    if first.has_gpus and first.processor != X86_64:
        raise SpecError(
            f"{_listed(parsed)}: {first.words}: TensorFlow has no build for GPUs on {first.processor}; "
            "train on workers with x86_64 processors"
        )
    unknown = [name for name, kind in parsed.items() if kind.has_gpus and kind.capability is None]
    if unknown:
        raise SpecError(
            f"{_listed(unknown)}: the compute capability of the GPUs is unknown. At boot, nvidia-smi did not print a "
            "single value, and deepcdk could not derive it from the instance types. Check nvidia-smi on the node "
            "(`fab ssh NODE`), then replace the node with `fab replace`"
        )
    found = {kind.capability for kind in parsed.values() if kind.capability is not None}
    return RuntimeKind(
        processor=first.processor, has_gpus=first.has_gpus, capabilities=tuple(sorted(found)), python=first.python
    )


def _check_one_kind(kinds: Mapping[str, NodeKind]) -> None:
    groups: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        groups.setdefault(kind.words, []).append(name)
    if len(groups) > 1:
        listed = "; ".join(f"{_listed(names)}: {words}" for words, names in groups.items())
        raise SpecError(
            f"all hosts of a run use the same environment, but these are of {len(groups)} kinds: {listed}; "
            "replace the nodes of one kind (`fab replace`), or deploy workers of one kind"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)

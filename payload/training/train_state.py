"""The state of a run: the model and optimizer, with the arrays to store in checkpoints."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import keras
import numpy.typing as npt

from agent.errors import ReportedError
from payload.data.dataset import Dataset
from payload.models.registry import network
from payload.settings import SettingError, Settings
from payload.training.optimizers.optimizer import Optimizer, make_optimizer
from payload.training.safetensors_io import bytes_of
from payload.training.schedule import Schedule

_SEED: Final = "/seed_generator_state"
"""Suffix of the paths of Keras's seed variables."""
_SEEDS: Final = "model/seed/"
"""Prefix of the stable names of seed variables."""
_SEED_STRIDE: Final = 0x9E3779B1
"""Difference between the seeds of adjacent ranks: a prime near 2^32 over the golden ratio, so that no two coincide."""
_SEED_RANGE: Final = 2**31 - 2
"""Keras takes seeds modulo this number."""


class OtherNetworkError(ReportedError, ValueError):
    """The arrays belong to another network. The message does not name their file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Model and optimizer. Their variables change in place."""

    model: Any
    optimizer: Optimizer

    @property
    def variables(self) -> dict[str, Any]:
        """Return the TensorFlow variables of model and optimizer by stable names, including the seeds of dropout.

        Keras numbers seeds over all models of a process. Here they are numbered within this model.
        """
        seeds = iter(range(len(self.model.variables)))
        named = {
            f"{_SEEDS}{next(seeds)}" if variable.path.endswith(_SEED) else f"model/{variable.path}": variable.value
            for variable in self.model.variables
        }
        named.update({f"optimizer/{variable.path}": variable.value for variable in self.optimizer.variables})
        return named

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of all variables as arrays, with the same names as `variables`."""
        return {name: variable.numpy() for name, variable in self.variables.items()}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Set all variables. Raises OtherNetworkError, before any change, if names or shapes do not match."""
        variables = self.variables
        if variables.keys() != arrays.keys():
            different = sorted(variables.keys() ^ arrays.keys())
            raise OtherNetworkError(
                f"belongs to another network: the variables {', '.join(different[:4])} are in only one of the two"
            )
        for name, variable in variables.items():
            if arrays[name].shape != tuple(variable.shape):
                raise OtherNetworkError(
                    f"belongs to another network: {name} has shape {arrays[name].shape}, not {tuple(variable.shape)}"
                )
        for name, variable in variables.items():
            variable.assign(arrays[name])

    def separate_dropout_seeds(self, rank: int) -> None:
        """Give dropout different seeds on each rank. Rank 0 keeps its seeds, because checkpoints store them.

        Call this method when all ranks have rank 0's seeds. A rank gets the same seeds after the run resumes.
        """
        for name, variable in self.variables.items():
            if name.startswith(_SEEDS):
                seed, drawn = (int(value) for value in variable.numpy())
                further = rank * _SEED_STRIDE
                variable.assign([(seed + further) % _SEED_RANGE if further else seed, drawn])

    def digest(self) -> bytes:
        """Return the SHA-256 of all variables of model and optimizer, except the seeds of dropout."""
        weights = {name: variable for name, variable in self.variables.items() if not name.startswith(_SEEDS)}
        return digest_of((name, variable.numpy()) for name, variable in sorted(weights.items()))


def new_state(settings: Settings, data: Dataset, schedule: Schedule) -> TrainState:
    """Build model and optimizer, with initial weights from the seed. This sets the random seeds of the whole process.

    Raises the errors of `build_model` and `make_optimizer`.
    """
    keras.utils.set_random_seed(settings.seed)
    model = build_model(settings, data, schedule)
    return TrainState(model=model, optimizer=make_optimizer(settings, model))


def build_model(settings: Settings, data: Dataset, schedule: Schedule) -> Any:
    """Build a network that accepts every image size of the run. Its weights are random.

    If there are several sizes, or rectangular test images, the network accepts any size. Raises ImageShapeError for a
    size that the network does not support, and SettingError if a size is missing.
    """
    known = network(settings.network)
    sizes = {image_size(data, phase.size) for phase in schedule.phases}
    sizes |= {image_size(data, settings.test_size or phase.size) for phase in schedule.phases}
    rectangular = data.test.size is None and any(phase.rectangular for phase in schedule.phases)
    size: tuple[int | None, int | None] = (None, None) if len(sizes) > 1 or rectangular else next(iter(sizes))
    for height, width in sizes:
        known.require_size(height, width)
    return known.build(
        (*size, data.train.channels),
        data.train.classes,
        precision=settings.precision,
        zero_gamma=settings.zero_gamma,
    )


def image_size(data: Dataset, side: int) -> tuple[int, int]:
    """Return height and width for an image side; 0: the size of the data.

    Raises SettingError if `side` is 0 and the images have different sizes.
    """
    if side:
        return (side, side)
    if data.train.size is None:
        raise SettingError(
            "--image-size", None, "the images of this data set have different sizes; set one, for example 224"
        )
    return data.train.size


def digest_of(arrays: Iterable[tuple[str, npt.NDArray[Any]]]) -> bytes:
    """Return the SHA-256 of the names, types, shapes and bytes of arrays. Only one array is in memory at a time."""
    digest = hashlib.sha256()
    for name, array in arrays:
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(bytes_of(array))
    return digest.digest()

"""The state of a run: model, optimizer and position, and its way into a checkpoint and back."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from payload.data.parts import Parts
from payload.errors import PayloadError
from payload.models.registry import network
from payload.training.checkpoints import Checkpoint, CheckpointStore, DamagedCheckpointError
from payload.training.optimizers import Optimizer, make_optimizer
from payload.training.progress import Progress
from payload.training.schedule import Schedule
from payload.training.settings import SettingError, Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Hold model and optimizer. Their variables change in place."""

    model: Any
    optimizer: Optimizer

    @property
    def variables(self) -> dict[str, Any]:
        """Map a lasting name to each TensorFlow variable of model and optimizer."""
        named = {f"model/{variable.path}": variable.value for variable in self.model.variables}
        named.update({f"optimizer/{variable.path}": variable.value for variable in self.optimizer.variables})
        return named

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Copy all variables."""
        return {name: variable.numpy() for name, variable in self.variables.items()}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Set all variables from a checkpoint. Raises DamagedCheckpointError where names or shapes do not fit."""
        variables = self.variables
        if variables.keys() != checkpoint.arrays.keys():
            different = sorted(variables.keys() ^ checkpoint.arrays.keys())
            raise DamagedCheckpointError(checkpoint.path, f"not of this network: {', '.join(different[:4])}")
        for name, variable in variables.items():
            array = checkpoint.arrays[name]
            if array.shape != tuple(variable.shape):
                raise DamagedCheckpointError(checkpoint.path, f"{name} is {array.shape}, not {tuple(variable.shape)}")
            variable.assign(array)

    def averaged(self) -> AbstractContextManager[None]:
        """Let the model have the moving average of its weights for a while, where one is kept."""
        return self.optimizer.averaged()

    def digest(self) -> bytes:
        """Return the SHA-256 of all weights, bit for bit, those of the optimizer included."""
        return digest_of(self.arrays())


def new_state(settings: Settings, data: Parts, schedule: Schedule) -> TrainState:
    """Build model and optimizer, with initial weights from the seed. Raises PayloadError for sizes that do not fit."""
    keras.utils.set_random_seed(settings.seed)
    model = build_model(settings, data, schedule)
    return TrainState(model=model, optimizer=make_optimizer(settings, model))


def build_model(settings: Settings, data: Parts, schedule: Schedule) -> Any:
    """Build the network for every size that the run looks at."""
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


def image_size(data: Parts, side: int) -> tuple[int, int]:
    """Return height and width for a side of the settings. Raises SettingError where 0 leaves it open."""
    if side:
        return (side, side)
    if data.train.size is None:
        raise SettingError("--image-size", None, "the images of this data set have different sizes; give one, as 224")
    return data.train.size


def digest_of(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return the SHA-256 of named arrays: names, types, shapes and every bit."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(array.tobytes())
    return digest.digest()


def resume(
    state: TrainState, store: CheckpointStore, fresh: Progress, *, wanted: bool, root: bool
) -> tuple[Progress, str | None]:
    """Restore the newest valid checkpoint on rank 0, to be broadcast from there; return position and checkpoint's name.

    Returns `fresh` where none is wanted or there is none. Raises PayloadError where a run's checkpoints lie in the way,
    where all are damaged, or where the newest belongs to another run.
    """
    if not root:
        return fresh, None
    if not wanted:
        if store.paths():
            raise PayloadError(f"{store.directory} already holds checkpoints; give --resume, or a new --run-dir")
        return fresh, None
    checkpoint, faults = store.newest_valid()
    for fault in faults:
        print(f"payload.train: warning: passed over {fault}", flush=True)
    if checkpoint is None:
        if faults:
            raise PayloadError(f"none of {len(faults)} checkpoints in {store.directory} is valid; give a new --run-dir")
        return fresh, None
    require_same_run(checkpoint.progress, fresh)
    state.restore(checkpoint)
    return checkpoint.progress, checkpoint.path.name


def require_same_run(found: Progress, wanted: Progress) -> None:
    """Refuse to go on from a checkpoint of another run, whose steps would not be this one's."""
    for field in ("recipe", "seed", "global_batch"):
        before, now = getattr(found, field), getattr(wanted, field)
        if before != now:
            flag = "--" + field.replace("_", "-")
            rule = f"the run to resume had {before}; give {flag} {before}, or a new --run-dir"
            raise SettingError(flag, now, rule)

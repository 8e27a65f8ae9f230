"""Train networks on one rank or several, and compare the changes of their weights.

Usage: gradient_program.py FILE NETWORKS [more]. On one rank, write the changes of each network to FILE. Under
horovodrun, compare with FILE. NETWORKS: names separated by commas. more: also test behavior that only several ranks
show.

All ranks together take the same batch. Their shares are uneven, and some shares are empty. Networks compute in float64,
so that only real differences show. They have no dropout, because its random numbers depend on the rank's own batch.
Normalization is over all ranks. Small networks are compiled as in a run and take a second step. Large networks run the
same step operation by operation, since tracing them takes longer than everything else here. They have all their layers
and branches but only an eighth of the filters, since drawing 20 million weights takes as long as a step.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final
from unittest import mock

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from payload.models import lenet, resnet
from payload.models.registry import network
from payload.settings import Settings
from payload.training import distributed
from payload.training.distributed import Ranks
from payload.training.optimizers.optimizer import Optimizer, make_optimizer
from payload.training.train_state import digest_of
from payload.training.train_step import make_train_step
from tests.payload.training.small_network import small_network

FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "lenet": {},
    "small": {"dropout": 0.0},
    "alexnet": {"dropout": 0.0, "units": 64},
    "resnet50": {},
    "lstm": {"dropout": 0.0},
}
"""Differences from the published networks: only dropout and the width of layers."""
NARROWER: Final = 8
COMPILED: Final = ("lenet", "small", "lstm")
MIN_SIDE: Final = 4
"""Pixels. With one-step sequences, the gradient of a recurrent network would not reach all weights."""
SHARES: Final = {1: ((5,), (1,)), 3: ((3, 0, 2), (0, 1, 0))}
"""Images of each rank, by number of ranks and step."""
SLOTS: Final = 4
CLASSES: Final = 3
RATE: Final = 0.01
STRIDE: Final = 97
"""Only every STRIDE-th value of large variables is compared."""

Arrays = dict[str, npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Trained:
    """A network after its steps, and the sums that the steps returned."""

    model: Any
    optimizer: Optimizer
    before: Arrays
    sums: list[Any]

    def change(self) -> Arrays:
        """Return the change of each variable, including the moving moments, at some positions."""
        after = values_of(self.model)
        return {path: sample(after[path] - value) for path, value in self.before.items()}


def main() -> None:
    ranks = distributed.join()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    file, names = Path(sys.argv[1]), sys.argv[2].split(",")
    if ranks.size == 1:
        changes = {f"{name}:{path}": part for name in names for path, part in train(name, ranks).change().items()}
        np.savez(file, **changes)  # type: ignore[arg-type]  # none of them is its option `allow_pickle`
        return
    alone = np.load(file)
    found: dict[str, Any] = {name: largest_difference(train(name, ranks), alone, name) for name in names}
    if len(sys.argv) > 3:
        found["compressed"] = largest_difference(train("lenet", ranks, compression="fp16"), alone, "lenet")
        found["sums"] = train("lenet", ranks).sums[-1].tolist()
        found["overflow"] = overflow(ranks)
        found["own moments"] = digest("small", ranks, batch_norm="local")
        found["in parts"] = digest("small", ranks, accumulation_steps=2)
    print("FOUND " + json.dumps(found), flush=True)
    distributed.leave()


def train(name: str, ranks: Ranks, precision: str = "float64", **changed: Any) -> Trained:
    """Build a network and take all steps."""
    given = {"batch_norm": "synchronized", "weight_decay": 1e-3, **changed}
    known = "lenet" if name == "small" else name
    settings = Settings(network=known, precision="float32" if precision == "float64" else precision, **given)
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    tf.config.run_functions_eagerly(name not in COMPILED)
    chosen = network(known)
    side = max(chosen.smallest_size, MIN_SIDE)
    shape = (side, side, chosen.channels)
    with replaced(name):
        model = chosen.build(shape, CLASSES, precision=precision, zero_gamma=False, **FAMILIES[name])
    optimizer = make_optimizer(settings, model)
    before = values_of(model)
    step = make_train_step(model, optimizer, settings)
    steps = 2 if name in COMPILED else 1
    sums = [step(*batch(number, shape, ranks)).numpy() for number in range(steps)]
    return Trained(model, optimizer, before, sums)


def replaced(name: str) -> AbstractContextManager[Any]:
    """Give convolutions of large networks an eighth of their filters, and replace LeNet by the small network."""
    if name == "small":
        return mock.patch.object(lenet, "lenet", small_network)
    if name in COMPILED:
        return nullcontext()
    if name.startswith("resnet"):
        return mock.patch.object(resnet, "WIDTHS", tuple(width // NARROWER for width in resnet.WIDTHS))
    layer = keras.layers.Conv2D
    return mock.patch.object(keras.layers, "Conv2D", lambda n, *words, **more: layer(n // NARROWER, *words, **more))


def batch(number: int, shape: tuple[int, ...], ranks: Ranks) -> tuple[Any, ...]:
    """Return one rank's input to a step: its images, the stop request of rank 1, and a skipped record per rank.

    The last value is the duration of the previous step: 0.25 s on rank 0, 0.5 s on rank 1, 0.75 s on rank 2.
    """
    shares = SHARES[ranks.size][number]
    count = sum(shares)
    drawn = np.random.default_rng(number)
    images = drawn.integers(0, 256, (count, *shape)).astype(np.uint8)
    labels = drawn.integers(0, CLASSES, count).astype(np.int32)
    first = sum(shares[: ranks.rank])
    own = slice(first, first + shares[ranks.rank])
    unused = 0 if ranks.size == 1 else SLOTS - shares[ranks.rank]
    used = np.ones(shares[ranks.rank], np.float32)
    padded = [
        np.concatenate([part, np.zeros((unused, *part.shape[1:]), part.dtype)])
        for part in (images[own], labels[own], used)
    ]
    return (*padded, count, RATE, ranks.rank == 1, ranks.rank, 0.25 * (ranks.rank + 1))


def digest(name: str, ranks: Ranks, **changed: Any) -> str:
    """Train, and return the digest of the network, including the moving moments."""
    return digest_of(values_of(train(name, ranks, **changed).model).items()).hex()


def values_of(model: Any) -> Arrays:
    return {variable.path: np.asarray(variable.value) for variable in model.variables}


def sample(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.ravel()[:: STRIDE if values.size > 10_000 else 1]


def largest_difference(trained: Trained, alone: Any, name: str) -> float:
    """Return the largest difference between the changes of a variable, relative to its largest change.

    If a change is tiny compared with the network's largest change, a millionth of the latter is used instead: the
    gradient of a bias before a normalization is zero except for rounding.
    """
    changes = trained.change()
    largest = {path: float(np.abs(alone[f"{name}:{path}"]).max()) for path in changes}
    floor = max(largest.values()) / 1e6
    differences = {path: float(np.abs(change - alone[f"{name}:{path}"]).max()) for path, change in changes.items()}
    return max(difference / max(largest[path], floor) for path, difference in differences.items())


def overflow(ranks: Ranks) -> dict[str, Any]:
    """Make one gradient of rank 1 infinite in every step; return whether weights changed, and the loss scale."""
    healthy = distributed.sum_in_graph

    def sick(tensors: Sequence[Any]) -> list[Any]:
        first, *rest = tensors
        return healthy([first * (np.inf if ranks.rank == 1 else 1.0), *rest])

    distributed.sum_in_graph = sick
    try:
        trained = train("lenet", ranks, precision="float16", ema_decay=0.9)
    finally:
        distributed.sum_in_graph = healthy
    loss_scale = trained.optimizer.loss_scale
    scale, good_steps = (float(variable.numpy()) for variable in (loss_scale.variables if loss_scale else []))
    changed = any(change.any() for change in trained.change().values())
    return {"changed": changed, "scale": scale, "good_steps": good_steps}


if __name__ == "__main__":
    main()

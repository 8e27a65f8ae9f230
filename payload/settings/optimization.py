"""The optimizer: how weights follow from gradients."""

from __future__ import annotations

import dataclasses
from typing import Final

from payload.settings.rules import setting

OPTIMIZERS: Final = ("sgd", "rmsprop", "adam", "adamw", "lars", "larc", "lamb")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationSettings:
    """Choose the optimizer and what goes with it."""

    optimizer: str = setting("sgd", "optimizer", choices=OPTIMIZERS)
    momentum: float = setting(0.9, "momentum; first decay rate of Adam and its variants", low=0, high=1)
    beta2: float = setting(0.999, "second decay rate of Adam and its variants; decay rate of RMSprop", low=0, high=1)
    weight_decay: float = setting(
        0.0,
        "weight decay: of the gradient (sgd, lars, larc, rmsprop, adam), of the weights (adamw, lamb)",
        low=0,
        high=1,
    )
    decay_all: bool = setting(False, "decay batch normalisation and biases too")
    trust_coefficient: float = setting(0.001, "of LARS and LARC: eta", low=0, high=1)
    label_smoothing: float = setting(0.0, "fraction of the truth spread over all classes", low=0, high=0.9)
    ema_decay: float = setting(
        0.0, "decay of the moving average of the weights, which is evaluated; 0: none", low=0, high=0.999999
    )
    accumulation_steps: int = setting(1, "parts into which a rank divides its batch, to save memory", low=1, high=4096)
    clip_norm: float = setting(0.0, "largest norm of all gradients together; 0: not clipped", low=0, high=1e9)
    zero_gamma: bool = setting(True, "start residual blocks as the identity, where the network has them")
    batch_norm: str = setting(
        "local", "normalise over a rank's own images or over those of all ranks", choices=("local", "synchronised")
    )

"""The recipe of the demonstration: handwritten digits, which scikit-learn includes."""

from __future__ import annotations

from typing import Final

from payload.recipes.recipe import Recipe
from payload.settings import Settings

DIGITS: Final = Recipe(
    name="digits",
    summary="LeNet on 1,797 handwritten digits that come with the runtime",
    settings=Settings(
        network="lenet",
        dataset="digits",
        epochs=20,
        batch_per_rank=32,
        global_batch_limit=128,  # 256: accuracy falls to 97.8%; 512: the scaled rate makes the network diverge
        base_batch=64,
        learning_rate=0.05,
        warmup_epochs=5,
        momentum=0.9,
        # There are only 1,437 images. Augmentation raises the accuracy from about 97% to 99%.
        rotation_deg=10,
        shift_fraction=0.08,
        zoom_fraction=0.1,
        checkpoint_epochs=5,
    ),
    command="fab train --nodes 2 --recipe digits",
    hardware="2 ranks on 2 CPU cores",
    expected_time="20 s, of which 6 s start-up",
    expected_accuracy="98.6% to 99.4% over seeds 1 to 3",
    evidence="measured",
    source="",
)

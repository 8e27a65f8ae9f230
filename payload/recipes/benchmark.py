"""The benchmark of "AWS Works with Intel to Enable Optimized Deep Learning Frameworks" (2018), as a training run.

It uses synthetic images, RMSprop at 0.001 and 100 steps. Flags select the network and batch. For the article's whole
table (networks by batch sizes on one machine), use `python -m payload.bench`. To measure a cluster, use `fab bench`.
"""

from __future__ import annotations

from typing import Final

from payload.recipes.recipe import UNKNOWN, Recipe
from payload.settings import Settings

BENCHMARK: Final = Recipe(
    name="benchmark",
    summary="images per second of a network on synthetic images",
    settings=Settings(
        network="resnet50",
        dataset="synthetic",
        epochs=1,
        train_limit=3200,  # 100 steps of 32 images, as in the article
        batch_per_rank=32,
        optimizer="rmsprop",
        beta2=0.9,
        momentum=0,
        learning_rate=0.001,
        decay="constant",
    ),
    command="fab train --nodes 2 --recipe benchmark -- --network vgg16 --batch-per-rank 64",
    hardware="one c5.18xlarge, 36 cores",
    expected_time="the article's figures are a picture; none is repeated here",
    expected_accuracy=UNKNOWN,
    evidence="cited",
    source="AWS and Intel 2018, figure 1: up to 7.4 times the stock build of its time",
)

"""The 90 epochs of ImageNet that AWS's deep-learning-models used to train ResNet-50 with Horovod to over 75.5% top-1.

They were published for 8 nodes of 8 GPUs (p3.16xlarge) with 256 images per GPU. The rate is 0.1 for each 256 images of
the global batch. It starts at 0.001, with 10 epochs of warm-up, then falls to zero as a parabola. From 128 GPUs, LARC
is used, with a rate that does not grow with the batch.
"""

from __future__ import annotations

from typing import Final

from payload.recipes.recipe import UNKNOWN, Recipe, Variant
from payload.recipes.recipe_times import resnet50_epochs
from payload.settings import Settings

LARC_FROM: Final = 128
"""Minimum number of GPUs for the published LARC settings."""

IMAGENET_90: Final = Recipe(
    name="imagenet-90",
    summary="ResNet-50 on ImageNet in 90 epochs, on 64 GPUs",
    settings=Settings(
        network="resnet50",
        dataset="imagenet",
        epochs=90,
        batch_per_rank=256,
        base_batch=256,
        learning_rate=0.1,
        warmup_epochs=10,
        warmup_rate=0.001,
        decay="polynomial",
        decay_power=2,
        optimizer="sgd",
        momentum=0.9,
        weight_decay=1e-4,
        image_size=224,
        smallest_crop=0.08,
        flip=True,
        precision="float16",
        loss_scale=1024,
        compression="fp16",
    ),
    command="fab train --nodes 8 --recipe imagenet-90 --data-dir /mnt/efs/data/imagenet",
    hardware="8 nodes of 8 V100 GPUs (p3.16xlarge)",
    expected_time="not stated by the source",
    expected_accuracy="over 75.5% top-1",
    evidence="cited",
    source="https://github.com/aws-samples/deep-learning-models",
    current_types=resnet50_epochs(90),
    variants=(
        Variant(
            name="sgd",
            ranks=1,
            overrides={},
            expected_time="not stated by the source",
            expected_accuracy="over 75.5% top-1 on 64 GPUs",
        ),
        Variant(
            name="larc",
            ranks=LARC_FROM,
            overrides={
                "optimizer": "larc",
                "base_batch": 0,
                "learning_rate": 3.7,
                "warmup_epochs": 5,
                "momentum": 0.977,
                "weight_decay": 5e-4,
                "loss_scale": 256,
                "trust_coefficient": 0.013,
            },
            expected_time="not stated by the source",
            expected_accuracy=UNKNOWN,
        ),
    ),
)

"""The protocol of "Benchmarking NVIDIA CUDA 9 and Amazon EC2 P3 Instances Using Fashion MNIST" (Poduska 2018).

Training uses 80% of the training images, and validation 20%. There are 10 epochs at 0.001, 10 at 0.0001, and 0, 25 or
50 with augmentation. Results are JSON and a confusion matrix. The article does not state the optimizer, the batch, or
the ranges of rotation, shift and zoom. Adam, 256 images and the ranges below are this project's choices.
"""

from __future__ import annotations

from typing import Final

from payload.recipes.recipe import UNKNOWN, Recipe
from payload.recipes.recipe_times import one_gpu
from payload.settings import Settings

FASHION_MNIST: Final = Recipe(
    name="fashion-mnist",
    summary="a VGG-like network on 70,000 pictures of clothes, the protocol of a benchmark of 2018",
    settings=Settings(
        network="fashion-vgg",
        dataset="fashion-mnist",
        validation_fraction=0.2,
        epochs=20,
        augmented_epochs=0,
        batch_per_rank=256,
        global_batch_limit=1024,
        optimizer="adam",
        momentum=0.9,
        rate_phases="0-10:0.001,10-:0.0001",
        rotation_deg=8,
        shift_fraction=0.08,
        zoom_fraction=0.08,
        confusion_matrix=True,
        checkpoint_epochs=5,
    ),
    command="fab train --recipe fashion-mnist --data-dir /mnt/efs/data/fashion-mnist -- --augmented-epochs 25",
    hardware="one GPU of a P2 or P3 instance",
    expected_time="the article's figures are pictures; none is repeated here",
    expected_accuracy=UNKNOWN,
    evidence="cited",
    source="https://www.dominodatalab.com/blog/benchmarking-nvidia-cuda-9-amazon-ec2-p3-instances-using-fashion-mnist",
    current_types=one_gpu("g4dn.xlarge", "g6.xlarge", "g6e.xlarge"),
)

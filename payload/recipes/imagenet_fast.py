"""The schedules of fast.ai and DIUx (`imagenet18`, 2018): ResNet-50 to 93% top-5 on 1, 4, 8 and 16 nodes of 8 GPUs.

Training starts with small images and large batches, and continues with larger images and smaller rates. The global
batch is the published batch per GPU times the published number of GPUs. With another number of ranks, these batches
are divided among them.
"""

from __future__ import annotations

from typing import Final

from payload.recipes.recipe import Recipe, Variant
from payload.recipes.recipe_times import resnet50_times
from payload.settings import Settings
from payload.settings.image_phases import ImagePhase, phases_text
from payload.settings.learning_rate import pieces_text

GPUS_PER_NODE: Final = 8
CROPS: Final = {128: 0.08, 224: 0.087, 288: 0.5}
"""Minimum fraction of an image's area in a random crop, by size. At 288 the network adapts to large, whole objects."""

Rates = tuple[tuple[int, int, float, float], ...]
"""Start and end in epochs, first and last rate as multiples of the run's base rate."""
Images = tuple[tuple[int, int, int], ...]
"""First epoch, image size in pixels, images per GPU and step."""

ONE_RATES: Final[Rates] = (  # rates follow the batch that fits into memory at each size
    (0, 7, 1, 2),
    (7, 13, 2, 1 / 4),
    (13, 22, 224 / 512, 224 / 5120),
    (22, 25, 224 / 5120, 224 / 51200),
    (25, 28, 128 / 51200, 128 / 512000),
)
FOUR_RATES: Final[Rates] = (
    (0, 6, 1, 2),
    (6, 11, 2, 2),
    (11, 13, 2, 1),
    (13, 16, 224 / 256, 224 / 256),
    (16, 24, 224 / 256, 224 / 2560),
    (24, 28, 224 / 2560, 224 / 25600),
    (28, 30, 128 / 25600, 128 / 256000),
)
EIGHT_RATES: Final[Rates] = (
    (0, 6, 1, 2),
    (6, 11, 2, 2),
    (11, 14, 2, 1),
    (14, 17, 1, 1),
    (17, 23, 1, 0.175),
    (23, 29, 0.175, 0.0175),
    (29, 36, 1 / 100, 1 / 1000),
)
SIXTEEN_RATES: Final[Rates] = (
    (0, 6, 1, 2),
    (6, 16, 2, 2),
    (16, 19, 1, 1),
    (19, 31, 0.3, 0.3),
    (31, 37, 0.03, 0.03),
    (37, 38, 0.02, 0.02),
    (38, 50, 0.002, 0.002),
)


def _variant(
    nodes: int, rate: float, rates: Rates, images: Images, minutes: str, top5: str, target_epochs: int
) -> Variant:
    gpus = nodes * GPUS_PER_NODE
    phases = [
        ImagePhase(
            start=start, size=size, global_batch=batch * gpus, smallest_crop=CROPS[size], rectangular=size == 288
        )
        for start, size, batch in images
    ]
    return Variant(
        name=f"{nodes}-nodes" if nodes > 1 else "1-node",
        ranks=gpus,
        overrides={
            "epochs": rates[-1][1],
            "rate_phases": pieces_text([(start, end, first * rate, last * rate) for start, end, first, last in rates]),
            "image_phases": phases_text(phases),
        },
        expected_time=f"{minutes} min on {nodes} p3.16xlarge",
        expected_accuracy=f"{top5}% top-5",
        target_epochs=target_epochs,
    )


VARIANTS: Final = (
    _variant(1, 1.0, ONE_RATES, ((0, 128, 512), (13, 224, 224), (25, 288, 128)), "109:12", "93.00", 28),
    _variant(4, 2.0, FOUR_RATES, ((0, 128, 256), (6, 128, 512), (13, 224, 224), (28, 288, 128)), "29:44", "93.05", 29),
    _variant(
        8,
        1.92,
        EIGHT_RATES,
        ((0, 128, 128), (6, 128, 256), (14, 224, 128), (17, 224, 224), (29, 288, 128)),
        "19:04",
        "93.0",
        30,
    ),
    _variant(
        16,
        1.88,
        SIXTEEN_RATES,
        ((0, 128, 64), (6, 128, 128), (16, 224, 64), (19, 224, 192), (37, 288, 128)),
        "16:08",
        "93.04",
        38,
    ),
)

IMAGENET_FAST: Final = Recipe(
    name="imagenet-fast",
    summary="ResNet-50 on ImageNet with growing images and batches, on 8 to 128 GPUs",
    settings=Settings(
        network="resnet50",
        dataset="imagenet",
        optimizer="sgd",
        momentum=0.9,
        weight_decay=1e-4,
        flip=True,
        precision="float16",
        loss_scale=1024,
        compression="fp16",
        zero_gamma=True,
    ),
    command="fab train --nodes 16 --recipe imagenet-fast --data-dir /mnt/efs/data/imagenet",
    hardware="1, 4, 8 or 16 nodes of 8 V100 GPUs (p3.16xlarge)",
    expected_time="by nodes, to 93% top-5: 109:12, 29:44, 19:04 and 16:08 min",
    expected_accuracy="93.0% top-5",
    evidence="cited",
    source="https://github.com/diux-dev/imagenet18",
    current_types=resnet50_times(),
    variants=VARIANTS,
)

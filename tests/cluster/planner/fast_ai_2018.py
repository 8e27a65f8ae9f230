"""The program and runs that fast.ai and DIUx submitted to DAWNBench; the tests compare the model with them.

Sources: https://github.com/diux-dev/imagenet18 (train.py, training/), commit a61ced3;
https://github.com/stanford-futuredata/dawn-bench-entries (ImageNet/train/), commit fb27b82.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from cluster.planner.compute_rates import NVIDIA_PYTORCH_2018
from cluster.planner.figure import CITED, within
from cluster.planner.workload import Phase, Program, Workload

TRAINING_IMAGES: Final = 1_281_167
EVALUATED_IMAGES: Final = 50_000
EPOCHS: Final = 90
HOURS: Final = 8.1
DGX1_VCPUS: Final = 80
WEIGHTS: Final = 25_557_032

PROGRAM: Final = Program(
    name="PyTorch 0.4, torchvision's DataLoader, DistributedDataParallel over NCCL 2",
    decode_images_s=within(
        (TRAINING_IMAGES + EVALUATED_IMAGES) * EPOCHS / (HOURS * 3600) / DGX1_VCPUS,
        0.9,
        1.4,  # the entries used Pillow-SIMD, which resizes faster
        CITED,
        f"90 epochs in 8.1 h, where the GPUs alone take 5.5, on a DGX-1 of 80 vCPUs: {NVIDIA_PYTORCH_2018}",
    ),
    fusion_bytes=256 << 20,  # `nccl_reduce_bucket_size` there
    batch_by_one_worker=True,  # a worker of torch.utils.data makes a batch
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """A published run."""

    name: str
    nodes: int
    workload: Workload
    minutes: float
    """Until 93% top-5, measured from the first step."""
    usd_per_hour: float
    """From the entry."""
    source: str

    @property
    def usd(self) -> float:
        """Return the cost of the run."""
        return self.minutes / 60 * self.usd_per_hour


NODE_USD_PER_HOUR: Final = 24.48
"""p3.16xlarge, from the entries."""
MIN_EVALUATED: Final = {128: 512, 224: 256, 288: 128}
"""Minimum number of images that a GPU evaluates at a time, by size (training/train_imagenet_nv.py, `preload_data`)."""


def _run(name: str, nodes: int, minutes: float, source: str, *phases: tuple[int, int, int, int]) -> PublishedRun:
    """Build a run from phases: epochs, pixels, images per GPU and step, shorter side of the stored images."""
    return PublishedRun(
        name=name,
        nodes=nodes,
        minutes=minutes,
        usd_per_hour=nodes * NODE_USD_PER_HOUR,
        source=source,
        workload=Workload(
            network="resnet50",
            precision="float16",
            gradient_bytes=2 * WEIGHTS,
            training_images=TRAINING_IMAGES,
            evaluated_images=EVALUATED_IMAGES,
            jpeg=True,
            program=PROGRAM,
            phases=tuple(
                Phase(
                    epochs=epochs,
                    size=size,
                    global_batch=batch * 8 * nodes,
                    evaluation_batch=max(batch, MIN_EVALUATED[size]),
                    stored_side=side,
                )
                for epochs, size, batch, side in phases
            ),
        ),
    )


DAWNBENCH: Final = (
    # Sizes by the times of its epochs; images of 160 pixels for the small ones (--small).
    _run("1 node", 1, 177.452, "fastai_pytorch.tsv", (18, 128, 128, 160), (23, 224, 128, 0), (1, 288, 128, 0)),
    _run(
        "4 nodes", 4, 29.705, "fastai_resnet50_p3_4_machine_pytorch.tsv",
        (6, 128, 256, 160), (7, 128, 512, 160), (15, 224, 224, 352), (1, 288, 128, 0),
    ),
    _run(
        "8 nodes", 8, 18.883, "fastai_resnet50_p3_8_machine_pytorch.tsv",
        (6, 128, 128, 160), (8, 128, 256, 160), (3, 224, 128, 352), (12, 224, 224, 352), (1, 288, 128, 0),
    ),
    # The first epoch of each size waits for cold disks; its schedule names no directory of smaller images for 224.
    _run(
        "16 nodes", 16, 18.086, "fastai_resnet50_p3_16_machine_pytorch.tsv",
        (6, 128, 64, 160), (10, 128, 128, 160), (3, 224, 64, 0), (18, 224, 192, 0), (1, 288, 128, 0),
    ),
)  # fmt: skip
"""The entries, each until its first epoch with 93% top-5."""

README: Final = (
    _run(
        "1 node", 1, 109 + 12 / 60, "train.py: 109:12 to 93.00",
        (13, 128, 512, 160), (12, 224, 224, 352), (3, 288, 128, 0),
    ),
    dataclasses.replace(DAWNBENCH[1], minutes=29 + 44 / 60, source="train.py: 29:44 to 93.05"),
    dataclasses.replace(DAWNBENCH[2], minutes=19 + 4 / 60, source="train.py: 19:04 to 93.0"),
    dataclasses.replace(DAWNBENCH[3], minutes=16 + 8 / 60, source="train.py: 16:08 to 93.04, with disks pre-warmed"),
)  # fmt: skip
"""The schedules as the project published them, which the recipe imagenet-fast follows, with their own times."""

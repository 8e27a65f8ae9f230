"""Time one rank of PyTorch's DistributedDataParallel over Gloo: `python ddp_rank.py JSON`, as `training_rank` does.

This file runs in an environment with PyTorch and without the payload. LeNet and ResNet-50 (version 1.5) have the
payload's layers.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed
from torch import nn

from benchmarks import step_times


def lenet() -> Any:
    """Build the payload's LeNet."""
    return nn.Sequential(
        *(nn.Conv2d(1, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, 10)),
    )


def convolution(channels: int, out: int, size: int, stride: int = 1) -> list[Any]:
    """Return a convolution and its batch normalization. `out`: number of filters. `size`: side of a filter."""
    return [nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)]


class Bottleneck(nn.Module):  # type: ignore[misc]  # PyTorch is not installed beside the payload
    """A block of ResNet-50."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        """Build a block from `channels` to four times `width`."""
        super().__init__()
        first, second = convolution(channels, width, 1), convolution(width, width, 3, stride)
        self.body = nn.Sequential(*first, nn.ReLU(), *second, nn.ReLU(), *convolution(width, 4 * width, 1))
        same = stride == 1 and channels == 4 * width
        self.side = nn.Identity() if same else nn.Sequential(*convolution(channels, 4 * width, 1, stride))

    def forward(self, images: Any) -> Any:
        """Add the block to its input or to the input's projection."""
        return torch.relu(self.body(images) + self.side(images))


def resnet50() -> Any:
    """Build ResNet-50."""
    layers, channels = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, 2 if block == 0 and width > 64 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def main(work: dict[str, Any]) -> None:
    """Time steps on random images, different ones on each rank, and write the times (`benchmarks.step_times`).

    `work` has fields of `training_rank.Work`: network, batch, steps, chunks and output.
    """
    rank = int(os.environ["RANK"])
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.distributed.init_process_group("gloo")
    build, shape, classes = {"lenet": (lenet, (1, 28, 28), 10), "resnet50": (resnet50, (3, 224, 224), 1000)}[
        work["network"]
    ]
    model = nn.parallel.DistributedDataParallel(build())
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    torch.manual_seed(rank)
    images, labels = torch.rand(work["batch"], *shape), torch.randint(classes, (work["batch"],))

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    step_times.write(
        work["output"],
        lambda: step_times.median_s(step, work["steps"]),
        work["chunks"],
        total=lambda: sum(parameter.double().sum().item() for parameter in model.parameters()),
        ranks=torch.distributed.get_world_size(),
        versions={"PyTorch": torch.__version__},
    )
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

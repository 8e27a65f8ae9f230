"""Train as one of a pair in PyTorch's DistributedDataParallel over Gloo: `python ddp_program.py JSON`, for scale.

Runs by itself in an environment that has PyTorch and not the payload. ResNet-50 (version 1.5) and LeNet have the
payload's layers; kernels, layout of images and threads are PyTorch's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed
from torch import nn

CLASSES = {"resnet50": 1000, "lenet": 10}
SHAPES = {"resnet50": (3, 224, 224), "lenet": (1, 28, 28)}


def lenet() -> Any:
    """Build Caffe's LeNet."""
    return nn.Sequential(
        *(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)),
    )


class Bottleneck(nn.Module):  # type: ignore[misc]  # PyTorch is not installed beside the payload
    """Stride in the 3 x 3 convolution, as in version 1.5."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        """Build a block from `channels` to four times `width`."""
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        self.side = nn.Identity()
        if stride != 1 or channels != out:
            self.side = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, images: Any) -> Any:
        """Add the block to its input, or to the projection of it."""
        return torch.relu(self.body(images) + self.side(images))


def resnet50() -> Any:
    """Build ResNet-50."""
    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def main(work: dict[str, Any]) -> dict[str, Any]:
    """Train, and return times in seconds."""
    rank = int(os.environ["RANK"])
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    name, batch = work["network"], work["batch"]
    model = nn.parallel.DistributedDataParallel(resnet50() if name == "resnet50" else lenet())
    optimizer = torch.optim.SGD(model.parameters(), 1e-6, momentum=0.9)
    images, labels = torch.rand(batch, *SHAPES[name]), torch.randint(CLASSES[name], (batch,))
    seconds = []
    for number in range(work["warmup"] + work["steps"]):
        if number == work["warmup"]:
            cpu_began = time.process_time()
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - began)
    cpu = (time.process_time() - cpu_began) / work["steps"]
    torch.distributed.destroy_process_group()
    return {"seconds": seconds[work["warmup"] :], "cpu_seconds": cpu, "chosen": f"PyTorch {torch.__version__}"}


if __name__ == "__main__":
    print("FIGURES " + json.dumps(main(json.loads(sys.argv[1]))), flush=True)

"""Training speed of one rank alone, in images per second: published, or estimated from published figures."""

from __future__ import annotations

from typing import Final

from cluster.planner.figure import CITED, ESTIMATED, MEASURED, Figure, exact, within
from cluster.planner.hardware import Hardware
from cluster.planner.workload import NETWORKS
from payload.recipes.recipe_times import A100_GB_S, A100_IMAGES_S, NVIDIA_RATES

NVIDIA_PYTORCH_2018: Final = (
    "https://github.com/NVIDIA/DeepLearningExamples/blob/147c370/PyTorch/Classification/RN50v1.5/README.md "
    "(PyTorch 18.09, 8 V100 16 GB)"
)
V100_IMAGES_S: Final = 5815.8 / 8
"""ResNet-50 v1.5 in mixed precision, per GPU of 8 (same source). In float32: 2857.9 / 8."""
V100_LATER_IMAGES_S: Final = 9510 / 8
"""The same in 2020, with TensorFlow and XLA (`NVIDIA_RATES`). Software alone made it 1.6 times as fast."""
FLOAT32: Final = exact(2857.9 / 5815.8, CITED, NVIDIA_PYTORCH_2018)
"""Ratio of float32 speed to mixed-precision speed."""
H200_IMAGES_S: Final = 2340
"""ResNet-50 in float16 on one H200 with batches of 256, as timed by `fab bench`, without XLA."""
H200_FLOAT32: Final = exact(1953 / 2340, MEASURED, "the same in float32, which TensorFlow computes in TF32 there")
"""Float32 ratio of the H200. All other GPUs get `FLOAT32`, which is from a GPU without TF32."""
MEASURED_H200: Final = "measured: `fab bench` on one H200, driver 580.159 (docs/bench.md)"
EVALUATION: Final = Figure(
    value=3.5, low=3.0, high=3.6, evidence=CITED, source=f"2615.6 / 747.3 in {NVIDIA_PYTORCH_2018}"
)
"""Images evaluated in the time it takes to train on one. A training step costs more than three forward passes."""

TENSORFLOW_BENCHMARKS: Final = (
    "https://github.com/tensorflow/docs/blob/62da04c/site/en/r1/guide/performance/benchmarks.md (one P100, float32)"
)
P100_IMAGES_S: Final = {"inception-v3": 142, "resnet50": 219, "resnet152": 91.8, "alexnet": 2987, "vgg16": 154}
"""Speeds from the same source. Their ratios to ResNet-50 are used on other GPUs too."""

MEMORY_GB_S: Final = {
    "V100": 900,
    "T4": 320,
    "T4g": 320,
    "A10G": 600,
    "A100": A100_GB_S,
    "L4": 300,
    "L40S": 864,
    "H100": 3350,
    "H200": 4800,
    "B200": 8000,
}
"""Memory bandwidth of GPUs from NVIDIA's data sheets. ResNet-50 in mixed precision is limited by it
(`payload.recipes.recipe_times`).
"""

CORE_GFLOPS: Final = 60
"""Speed of one physical core with AVX-512 in oneDNN's convolutions, measured (`payload/training/rank_tuning.py`)."""


def images_s(network: str, precision: str, hardware: Hardware) -> Figure:
    """Return the training speed of one rank alone, images/s, for images of the network's published size.

    `network` is the name of a neural network. Without GPUs, the ranks of a node share its cores, and `precision` does
    not count. Raises LookupError for an unknown network or GPU.
    """
    if not hardware.gpus:
        return _of_cores(network, hardware.cores / hardware.ranks)
    figure = _resnet50(hardware.gpu)
    if precision in ("float32", "float64"):
        figure = figure.times((H200_FLOAT32 if hardware.gpu == "H200" else FLOAT32).value)
    if network == "resnet50":
        return figure
    return _of_network(network, figure)


def _resnet50(gpu: str) -> Figure:
    """Return the speed of ResNet-50 in mixed precision on one GPU, images/s. Raises LookupError for an unknown GPU."""
    if gpu == "V100":
        return Figure(
            value=V100_IMAGES_S,
            low=0.85 * V100_IMAGES_S,
            high=V100_LATER_IMAGES_S,
            evidence=CITED,
            source=NVIDIA_PYTORCH_2018,
        )
    if gpu not in MEMORY_GB_S:
        raise LookupError(f"the speed of the GPU {gpu} is unknown; the known GPUs are {', '.join(MEMORY_GB_S)}")
    rate = A100_IMAGES_S / 8 * MEMORY_GB_S[gpu] / A100_GB_S
    if gpu == "A100":  # published with XLA, which deepcdk leaves off by default
        return within(rate, 0.6, 1.05, CITED, NVIDIA_RATES)
    if gpu == "H200":  # whole epochs were 0.86 as fast, because of first batches and reports between steps
        return within(H200_IMAGES_S, 0.8, 1.1, MEASURED, MEASURED_H200)
    # The H200 reaches only 0.35 of what its memory bandwidth suggests: without XLA, a bandwidth far above the A100's is
    # not the limit.
    down = 0.5 if MEMORY_GB_S[gpu] <= A100_GB_S else 0.3
    return within(rate, down, 1.2, ESTIMATED, f"by the bandwidth of its memory from the A100's rate in {NVIDIA_RATES}")


def _of_network(network: str, resnet50: Figure) -> Figure:
    """Return the speed of another network on a GPU, given the GPU's speed with ResNet-50. Raises LookupError if it is
    unknown.
    """
    if network in P100_IMAGES_S:
        factor = P100_IMAGES_S[network] / P100_IMAGES_S["resnet50"]
        source = f"{resnet50.source}; times {factor:.3g} by {TENSORFLOW_BENCHMARKS}"
        down, up = 0.8, 1.25
    else:
        factor = _multiply_adds("resnet50") / _multiply_adds(network)
        source = f"{resnet50.source}; times {factor:.3g} by the multiply-adds"
        down, up = 0.3, 1.25  # small layers leave a GPU idle
    return Figure(
        value=resnet50.value * factor,
        low=resnet50.low * factor * down,
        high=resnet50.high * factor * up,
        evidence=ESTIMATED,
        source=source,
    )


def _of_cores(network: str, cores: float) -> Figure:
    """Estimate the speed of one rank on this number of cores, images/s. Raises LookupError for an unknown network."""
    operations = 2 * 3 * _multiply_adds(network)
    rate = cores * CORE_GFLOPS * 1e9 / operations
    source = f"{CORE_GFLOPS}e9 operations a second and core, measured on cores with AVX-512 (docs/tuning.md)"
    return within(rate, 0.4, 1.6, ESTIMATED, source)


def _multiply_adds(network: str) -> int:
    if network not in NETWORKS:
        raise LookupError(
            f"the number of operations of network {network} is unknown; choose one of {', '.join(NETWORKS)}"
        )
    return NETWORKS[network].multiply_adds

"""List all networks as data. Only the standard library is imported until a network is built."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import math
from collections.abc import Iterator
from typing import Any, Final

from agent.errors import ReportedError

PRECISIONS: Final = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
    "float64": "float64",
}
"""Keras's policy for each number format of the layers. float64 is for checking the others."""


class UnknownNetworkError(ReportedError, LookupError):
    """The name of the network is unknown. `nearest`: the most similar name."""

    def __init__(self, name: str) -> None:
        known = [network.name for network in NETWORKS]
        self.name, self.nearest = name, difflib.get_close_matches(name, known, n=1, cutoff=0)[0]
        super().__init__(f"network {name}: unknown; did you mean {self.nearest}? Known: {', '.join(known)}")


class ImageShapeError(ReportedError, ValueError):
    """The network does not support the image size. `height` and `width` are None for images of several sizes."""

    def __init__(self, network: Network, height: int | None, width: int | None) -> None:
        self.network, self.height, self.width = network.name, height, width
        least = network.smallest_size
        if height is None or width is None:
            able = [known.name for known in NETWORKS if known.any_size]
            near = difflib.get_close_matches(network.name, able, n=1, cutoff=0)[0]
            super().__init__(
                f"images of several sizes: the weights of {network.name} depend on the size; use one size for all "
                "images, without --image-phases, --test-size and --rectangular-validation, or a --network for any "
                f"size, for example {near}. All of these: {', '.join(able)}"
            )
        else:
            super().__init__(
                f"images of {height} x {width}: {network.name} needs at least {least} x {least}; use larger images or "
                "another network"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """Description of a network: the function that builds it, its published image size, and its number of weights."""

    name: str
    module: str
    """Module with the function. It imports TensorFlow, so it is imported only to build the network."""
    function: str
    """Name of the function. It takes (height, width, channels) and the number of classes; options have defaults."""
    image_size: int
    """Height of the published images in pixels, and also their width unless `image_width` is set."""
    image_width: int = 0
    """Width of the published images in pixels; 0: same as the height."""
    channels: int = 3
    classes: int = 1000
    smallest_size: int
    """Smallest image side in pixels that leaves at least one pixel after all halvings."""
    any_size: bool = False
    """Whether a model supports images of any size, because its weights do not depend on it."""
    zero_gamma: bool = False
    """Whether it has residual blocks that can start as the identity."""
    parameters: int
    """Number of trainable weights at the published size and classes."""
    multiply_adds: int
    """Multiply-adds in the forward pass of a published image, in convolutions, dense and recurrent layers."""
    branches: int = 1
    """Maximum number of parallel branches. Their layers can run concurrently."""
    source: str
    """Source for the number of weights."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return height, width and channels of the published images."""
        return (self.image_size, self.image_width or self.image_size, self.channels)

    def multiply_adds_at(self, image_size: int) -> int:
        """Estimate the multiply-adds for images of `image_size` pixels a side; 0: the published size.

        The estimate grows with the area, although the cost of dense layers does not.
        """
        area = (image_size / self.image_size) ** 2 if image_size else 1.0
        return max(1, round(self.multiply_adds * area))

    def build(
        self,
        image_shape: tuple[int | None, int | None, int],
        classes: int,
        *,
        precision: str = "float32",
        zero_gamma: bool = True,
        **options: Any,
    ) -> Any:
        """Build the Keras model: float32 [B, *image_shape] to logits, float32 [B, classes].

        Pixels are 0 to 1. Height and width None: the model takes images of any size. `precision`: a key of PRECISIONS;
        weights and logits stay float32 except for "float64". `zero_gamma`: ignored by networks without residual blocks.
        `options`: those of the network's function. Raises ImageShapeError if the network does not support the size.
        """
        height, width, _ = image_shape
        self.require_size(height, width)
        if self.zero_gamma:
            options["zero_gamma"] = zero_gamma
        function = getattr(importlib.import_module(self.module), self.function)
        with _layers_in(PRECISIONS[precision]):
            return function(image_shape, classes, **options)

    def require_size(self, height: int | None, width: int | None) -> None:
        """Raise ImageShapeError if the network does not support this image size; None: images of several sizes."""
        if height is None or width is None:
            if not self.any_size:
                raise ImageShapeError(self, height, width)
        elif min(height, width) < self.smallest_size:
            raise ImageShapeError(self, height, width)


@contextlib.contextmanager
def _layers_in(policy: str) -> Iterator[None]:
    """Set the number format of layers that are created in a block, by the name of a Keras policy."""
    import keras

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def parameter_count(model: Any) -> int:
    """Return the number of trainable weights. Moving averages do not count."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def network(name: str) -> Network:
    """Return the network with this name. Raises UnknownNetworkError, which suggests the nearest name."""
    for known in NETWORKS:
        if known.name == name:
            return known
    raise UnknownNetworkError(name)


NETWORKS: Final = (
    Network(
        name="alexnet",
        module="payload.models.alexnet",
        function="alexnet",
        image_size=224,
        smallest_size=63,
        parameters=61_838_248,
        multiply_adds=838_788_800,
        source="the layers of arXiv:1404.5997, section 5, added up",
    ),
    Network(
        name="fashion-vgg",
        module="payload.models.fashion",
        function="fashion_vgg",
        image_size=28,
        channels=1,
        classes=10,
        smallest_size=4,
        parameters=8_454_954,
        multiply_adds=389_858_816,
        source="the layers that the article of Poduska 2018 lists, added up",
    ),
    Network(
        name="googlenet",
        module="payload.models.googlenet",
        function="googlenet",
        image_size=224,
        smallest_size=32,
        any_size=True,
        parameters=6_998_552,
        multiply_adds=1_582_671_872,
        branches=4,
        source="Caffe's bvlc_googlenet as deployed, without auxiliary classifiers",
    ),
    Network(
        name="inception-bn",
        module="payload.models.inception_bn",
        function="inception_bn",
        image_size=224,
        smallest_size=32,
        any_size=True,
        parameters=11_295_240,
        multiply_adds=2_032_600_064,
        branches=4,
        source="Caffe's BN-Inception as ported to PyTorch (bninception)",
    ),
    Network(
        name="inception-v3",
        module="payload.models.inception_v3",
        function="inception_v3",
        image_size=299,
        smallest_size=75,
        any_size=True,
        parameters=23_834_568,
        multiply_adds=5_713_216_096,
        branches=6,
        source="torchvision's inception_v3 without its auxiliary classifier",
    ),
    Network(
        name="lenet",
        module="payload.models.lenet",
        function="lenet",
        image_size=28,
        channels=1,
        classes=10,
        smallest_size=16,
        parameters=431_080,
        multiply_adds=2_293_000,
        source="Caffe's lenet, whose layers the presentation of Smola 2016 has",
    ),
    Network(
        name="lstm",
        module="payload.models.lstm",
        function="lstm",
        image_size=29,
        image_width=12,
        channels=1,
        classes=9,
        smallest_size=1,
        parameters=40_585,
        multiply_adds=1_129_600,
        branches=2,
        source="four gates of 64 units each way on 12 values, and a linear layer, added up",
    ),
    Network(
        name="resnet20",
        module="payload.models.resnet_cifar",
        function="resnet20",
        image_size=32,
        classes=10,
        smallest_size=8,
        any_size=True,
        zero_gamma=True,
        parameters=269_722,
        multiply_adds=40_551_040,
        branches=2,
        source="the layers of arXiv:1512.03385, section 4.2, added up; 0.27 million in its table 6",
    ),
    Network(
        name="resnet50",
        module="payload.models.resnet",
        function="resnet50",
        image_size=224,
        smallest_size=32,
        any_size=True,
        zero_gamma=True,
        parameters=25_557_032,
        multiply_adds=4_089_184_256,
        branches=2,
        source="torchvision's resnet50",
    ),
    Network(
        name="resnet152",
        module="payload.models.resnet",
        function="resnet152",
        image_size=224,
        smallest_size=32,
        any_size=True,
        zero_gamma=True,
        parameters=60_192_808,
        multiply_adds=11_513_626_624,
        branches=2,
        source="torchvision's resnet152",
    ),
    Network(
        name="vgg16",
        module="payload.models.vgg",
        function="vgg16",
        image_size=224,
        smallest_size=32,
        parameters=138_357_544,
        multiply_adds=15_470_264_320,
        source="torchvision's vgg16; 138 million in arXiv:1409.1556, table 2",
    ),
)
"""All networks, in display order."""

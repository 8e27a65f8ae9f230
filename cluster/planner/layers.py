"""The layers of each network: what they compute and the gradients they have; `python -m tools.network_layers`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_suffix(".csv")
COMMENT: Final = "# "
"""Begins the lines before the header, one a network: `# NETWORK PIXELS`."""
HEADER: Final = "network,layer,multiply_adds,gradients"


class LayerTableError(ValueError):
    """Report a table of layers that cannot be read. Carries `line` and `rule`."""

    def __init__(self, line: int, rule: str) -> None:
        self.line, self.rule = line, rule
        super().__init__(f"{TABLE}, line {line}: {rule}; write it anew with `python -m tools.network_layers`")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer with weights to train."""

    name: str
    multiply_adds: int
    """Of the forward pass, for an image of the network's published size; 0: next to nothing."""
    gradients: tuple[int, ...]
    """Number of weights of each gradient."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkLayers:
    """A network's layers."""

    image_size: int
    """Side of the images for which it was published, pixels."""
    layers: tuple[Layer, ...]
    """In the order of the forward pass."""

    @functools.cached_property
    def weights(self) -> int:
        """Return the number of weights to train."""
        return sum(sum(layer.gradients) for layer in self.layers)

    @functools.cached_property
    def multiply_adds(self) -> int:
        """Return those of the forward pass for one image."""
        return sum(layer.multiply_adds for layer in self.layers)

    @functools.cached_property
    def ready(self) -> tuple[tuple[float, float], ...]:
        """Return the gradients in the order of the backward pass: when each is ready, and its size.

        Both as parts of the whole: of the time of the backward pass, which a layer takes in proportion to its
        multiply-adds, and of all weights.
        """
        found, done = [], 0
        for layer in reversed(self.layers):
            done += layer.multiply_adds
            found += [(done / self.multiply_adds, size / self.weights) for size in reversed(layer.gradients)]
        return tuple(found)


def render(networks: Mapping[str, tuple[int, Iterable[Layer]]]) -> str:
    """Return the text of a table of networks, each with its image size and layers."""
    rows = [
        f"{name},{layer.name},{layer.multiply_adds},{' '.join(map(str, layer.gradients))}"
        for name, (_, layers) in networks.items()
        for layer in layers
    ]
    return "\n".join([*(f"{COMMENT}{name} {size}" for name, (size, _) in networks.items()), HEADER, *rows]) + "\n"


def parse(lines: Iterable[str]) -> Mapping[str, NetworkLayers]:
    """Parse a table's lines. Raises LayerTableError naming the line that breaks its rule."""
    sizes: dict[str, int] = {}
    layers: dict[str, list[Layer]] = {}
    header = False
    for number, line in enumerate(lines, start=1):
        try:
            if not header and line.startswith(COMMENT):
                name, size = line[len(COMMENT) :].split()
                sizes[name] = int(size)
            elif not header:
                if line != HEADER:
                    raise LayerTableError(number, f"the columns must be {HEADER}")
                header = True
            else:
                name, layer, multiply_adds, gradients = line.split(",")
                counts = tuple(map(int, gradients.split()))
                layers.setdefault(name, []).append(
                    Layer(name=layer, multiply_adds=int(multiply_adds), gradients=counts)
                )
        except LayerTableError:
            raise
        except ValueError:
            raise LayerTableError(number, f"{line!r} is no line of the table") from None
    if missing := sizes.keys() ^ layers.keys():
        raise LayerTableError(1, f"size or layers are missing for {', '.join(sorted(missing))}")
    return {name: NetworkLayers(image_size=sizes[name], layers=tuple(found)) for name, found in layers.items()}


@functools.cache
def networks() -> Mapping[str, NetworkLayers]:
    """Return every network's layers, by its name. Raises LayerTableError for a table that is damaged."""
    try:
        return parse(TABLE.read_text(encoding="utf-8").splitlines())
    except OSError as error:
        raise LayerTableError(0, f"cannot be read ({error.strerror})") from None

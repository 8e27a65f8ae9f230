from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ReportedError
from payload.models.registry import NETWORKS, ImageShapeError, UnknownNetworkError, network
from payload.settings import training as data

ROOT = Path(__file__).resolve().parents[3]


def test_each_network_is_selected_by_its_unique_name() -> None:
    names = [known.name for known in NETWORKS]
    assert names == list(data.NETWORKS)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "nearest"), [("resnet-50", "resnet50"), ("inception3", "inception-v3"), ("VGG-16", "vgg16"), ("", "")]
)
def test_unknown_name_is_rejected_with_nearest_match(name: str, nearest: str) -> None:
    with pytest.raises(UnknownNetworkError) as raised:
        network(name)
    assert isinstance(raised.value, ReportedError)
    assert f"network {name}: unknown" in str(raised.value)
    assert "resnet152" in str(raised.value)
    if nearest:
        assert f"did you mean {nearest}?" in str(raised.value)


def test_images_too_small_are_rejected_before_tensorflow_is_imported() -> None:
    program = (
        "import sys\n"
        "from payload.models.registry import ImageShapeError, network\n"
        "try:\n"
        "    network('inception-v3').build((64, 80, 3), 10)\n"
        "except ImageShapeError as error:\n"
        "    print(error)\n"
        "print('tensorflow' in sys.modules or 'keras' in sys.modules)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert output.splitlines() == [
        "images of 64 x 80: inception-v3 needs at least 75 x 75; use larger images or another network",
        "False",
    ]


def test_rejection_carries_its_data() -> None:
    with pytest.raises(ImageShapeError) as raised:
        network("vgg16").build((224, 31, 3), 10)
    assert (raised.value.network, raised.value.height, raised.value.width) == ("vgg16", 224, 31)


@pytest.mark.parametrize("name", ["vgg16", "alexnet", "lenet", "fashion-vgg"])
def test_images_of_several_sizes_are_rejected_with_suitable_network(name: str) -> None:
    with pytest.raises(ImageShapeError) as raised:
        network(name).require_size(None, None)
    assert f"images of several sizes: the weights of {name} depend on the size" in str(raised.value)
    assert "All of these: googlenet, inception-bn, inception-v3, resnet20, resnet50, resnet152" in str(raised.value)
    assert network(raised.value.network).any_size is False

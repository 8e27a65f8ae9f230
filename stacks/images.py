"""Machine images, as the names of the SSM parameters that lead to them tell."""

from __future__ import annotations

import re

# EC2's names of architectures, by the words that image publishers use.
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}


def architecture(parameter: str) -> str:
    """Return the architecture that an image parameter's name tells (`x86_64`, `arm64`); empty if it tells none."""
    told = {_ARCHITECTURES[word] for word in re.findall(r"x86_64|amd64|arm64|aarch64", parameter)}
    return told.pop() if len(told) == 1 else ""


def root_device(parameter: str) -> str:
    """Return the device of an image's root volume: Ubuntu's images have their own, most others share Amazon's."""
    return "/dev/sda1" if "ubuntu" in parameter else "/dev/xvda"

"""Where a cloud keeps its files."""

from __future__ import annotations

import pytest

from localcloud.layout import BadNameError, Layout


def test_two_clouds_share_no_file() -> None:
    one, two = Layout(name="lc0"), Layout(name="lc1")
    for name in ("run", "data", "lock", "state", "control", "log", "layers", "efs", "laptop"):
        assert getattr(one, name) != getattr(two, name)


@pytest.mark.parametrize("name", ["", "../x", "Lc0", "0lc", "a b", "x" * 33, "lc0\n"])
def test_names_that_are_no_directory_names_are_refused(name: str) -> None:
    with pytest.raises(BadNameError, match="must be 1 to 32"):
        Layout(name=name)

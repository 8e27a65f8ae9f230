"""Rules for single values."""

from __future__ import annotations

import dataclasses

import pytest

from stacks.config_keys.rules import ConfigError, is_mount, one_of


@dataclasses.dataclass(frozen=True)
class Keys:
    place: str = "/data"
    days: int = 7


@pytest.mark.parametrize("path", ["/data", "/mnt/fsx", "/opt/data", "/mnt/a/b-c_d", "/users", "/libraries"])
def test_a_directory_of_its_own_may_be_mounted_on(path: str) -> None:
    is_mount(Keys(place=path), "place")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("data", "absolute path"),
        ("/", "absolute path"),
        ("/a/../etc", "absolute path"),
        ("/a b", "absolute path"),
        ("/etc", "outside /etc"),
        ("/usr/local", "outside /usr"),
        ("/home/ec2-user", "outside /home"),
        ("/opt/deepcdk/runtime", "outside /opt/deepcdk"),
        ("/opt", "such as /opt/NAME"),
        ("/mnt", "such as /mnt/NAME"),
    ],
)
def test_a_mount_that_would_hide_what_the_node_needs_is_refused(path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        is_mount(Keys(place=path), "place")
    assert (caught.value.key, caught.value.value) == ("place", path)
    assert reason in caught.value.rule


def test_a_number_that_is_no_choice_is_told_the_choices() -> None:
    one_of(Keys(), "days", 0, 7)
    with pytest.raises(ConfigError, match=r"cluster.days = 8: must be one of 0, 7"):
        one_of(Keys(days=8), "days", 0, 7)

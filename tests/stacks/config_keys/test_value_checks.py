"""Rules for single values."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from stacks.config_keys.value_checks import (
    BUCKET,
    EMAIL,
    ConfigError,
    coerce,
    parse_network,
    require_choice,
    require_match,
    require_mount_point,
    require_range,
)


@dataclasses.dataclass(frozen=True)
class Keys:
    place: str = "/data"
    days: int = 7


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("data", "absolute path"),
        ("/", "absolute path"),
        ("/a/../etc", "absolute path"),
        ("/a b", "absolute path"),
        ("/opt/deepcdk/runtime", "outside of /opt/deepcdk"),
        ("/opt", "one like /opt/NAME"),
        ("/mnt", "one like /mnt/NAME"),
        ("/" + "a" * 255, "must have at most 255 characters"),
    ],
)
def test_mount_hiding_system_directory_is_rejected(path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_mount_point(Keys(place=path), "place")
    assert (caught.value.key, caught.value.value) == ("place", path)
    assert reason in caught.value.rule
    for own in ("/data", "/mnt/a/b-c_d", "/" + "a" * 254):
        require_mount_point(Keys(place=own), "place")


def test_number_outside_the_choices_is_rejected_with_the_choices() -> None:
    require_choice(Keys(), "days", 0, 7)
    with pytest.raises(ConfigError, match=r"cluster.days = 8: must be one of 0, 7"):
        require_choice(Keys(days=8), "days", 0, 7)


def test_range_includes_its_bounds() -> None:
    for days in (1, 7):
        require_range(Keys(days=days), "days", 1, 7)
    for days in (0, 8):
        with pytest.raises(ConfigError, match=rf"cluster.days = {days}: must be 1 to 7"):
            require_range(Keys(days=days), "days", 1, 7)


def test_pattern_matches_whole_text_and_only_ascii() -> None:
    require_match(Keys(place="/x1"), "place", r"/\w+", "a name")
    for place in ("/x 1", "/x\n", "/\N{GREEK SMALL LETTER ALPHA}"):
        with pytest.raises(ConfigError, match="must be a name"):
            require_match(Keys(place=place), "place", r"/\w+", "a name")


def test_network_must_be_in_canonical_form() -> None:
    assert parse_network("cidr", "10.0.0.0/16").prefixlen == 16
    for text, said in (
        ("10.0.0.1/16", r"such as 10\.0\.0\.0/16 "),
        ("10.0.0.1", r"must be written as 10\.0\.0\.1/32"),
        ("everywhere", r"such as 198\.18\.0\.7/32 "),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_network("cidr", text)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("text", "str", "text"),
        (True, "bool", True),
        (False, "bool", False),
        ("true", "bool", True),
        ("false", "bool", False),
        (7, "int", 7),
        ("7", "int", 7),
        ("-12", "int", -12),
        (7, "float", 7.0),
        (0.5, "float", 0.5),
        ("0.5", "float", 0.5),
        ("-3", "float", -3.0),
        (["a", "b"], "tuple[str, ...]", ("a", "b")),
        (" a, b,,", "tuple[str, ...]", ("a", "b")),
        ("", "tuple[str, ...]", ()),
    ],
)
def test_value_and_its_command_line_text_are_equal(value: Any, kind: str, expected: object) -> None:
    found = coerce("key", value, kind)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "kind", "rule"),
    [
        (7, "str", "must be a string"),
        ("True", "bool", "must be true or false"),
        (1, "bool", "must be true or false"),
        (True, "int", "must be a whole number"),
        (7.0, "int", "must be a whole number"),
        ("7.5", "int", "must be a whole number"),
        ("1234567890", "int", "must be a whole number"),
        (True, "float", "must be a number"),
        ("1e3", "float", "must be a number"),
        ("nan", "float", "must be a number"),
        (["a", 1], "tuple[str, ...]", "must be a list of strings"),
        (7, "tuple[str, ...]", "must be a list of strings"),
    ],
)
def test_value_of_wrong_type_is_rejected_with_key_and_value(value: Any, kind: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        coerce("key", value, kind)
    assert (caught.value.key, caught.value.value, caught.value.rule) == ("key", value, rule)


def test_error_shows_path_in_cdk_json_and_value_if_any() -> None:
    assert str(ConfigError("days", 8, "is too long")) == "cluster.days = 8: is too long"
    assert str(ConfigError("days", None, "is missing")) == "cluster.days: is missing"
    assert str(ConfigError("", None, "is no object")) == "cdk.json: is no object"
    assert str(ConfigError("", "/lab/cdk.json", "is no object")) == "/lab/cdk.json: is no object"


def test_example_of_a_network_fits_its_key() -> None:
    for key, example in ("vpc_cidr", "10.0.0.0/16"), ("ssh_cidr", "198.18.0.7/32"):
        with pytest.raises(ConfigError, match=f"must be an IPv4 network such as {example}"):
            parse_network(key, "here")


@pytest.mark.parametrize(
    "own",
    [
        *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys"),
        *("/tmp", "/usr", "/var", "/opt/aws", "/opt/deeplearning"),
    ],
)
def test_mount_on_or_within_system_directory_is_rejected(own: str) -> None:
    for path in (own, f"{own}/data"):
        with pytest.raises(ConfigError, match=f"must be outside of {own}, a system directory"):
            require_mount_point(Keys(place=path), "place")
    require_mount_point(Keys(place=f"{own}-data"), "place")


def test_each_list_item_is_matched_and_invalid_item_is_reported() -> None:
    @dataclasses.dataclass(frozen=True)
    class Listed:
        names: tuple[str, ...]

    require_match(Listed(names=()), "names", "a", "an a")
    with pytest.raises(ConfigError) as caught:
        require_match(Listed(names=("a", "b", "c")), "names", "a", "an a")
    assert (caught.value.key, caught.value.value, caught.value.rule) == ("names", "b", "must be an a")


@pytest.mark.parametrize(
    ("address", "taken"),
    [
        ("Ops.Team+Z9!#$%&'*/=?^_`{|}~-@Example-1.Z0.COM", True),
        ("a@b.co", True),
        ("a" * 64 + "@example.com", True),
        ("a" * 65 + "@example.com", False),
        ("a@" + "b" * 63 + ".com", True),
        ("a@" + "b" * 64 + ".com", False),
        ("a@" + "b." * 95 + "c" * 63, True),
        ("a@" + "b." * 96 + "c" * 63, False),
        ("a@b." + "c" * 64, False),
        ("a@b.c", False),
        ("a@b.c0m", False),
        ("a..b@example.com", False),
        (".a@example.com", False),
        ("a@-b.com", False),
        ("a@b-.com", False),
        ("a@com", False),
        ("a b@example.com", False),
    ],
)
def test_address_follows_rfc_5321_without_quotes(address: str, taken: bool) -> None:
    assert bool(re.fullmatch(EMAIL, address)) == taken


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("abc", True),
        ("a-b.c9", True),
        ("0" + "b" * 61 + "0", True),
        ("b" * 64, False),
        ("ab", False),
        ("a..b", False),
        ("Abc", False),
        ("-abc", False),
        ("abc.", False),
        ("192.168.1.1", False),
        ("1.22.333.4", False),
        ("192.168.1", True),
        ("192.168.1.1a", True),
        ("1234.1.1.1", True),
    ],
)
def test_bucket_name_follows_rules_of_s3(name: str, taken: bool) -> None:
    assert bool(re.fullmatch(BUCKET, name)) == taken

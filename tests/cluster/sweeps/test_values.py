"""The values of a parameter: lists, ranges, files, distributions, and invalid values."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UsageError
from cluster.sweeps.values import parse_parameter


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=0.1,0.01", ("0.1", "0.01")),
        ("lr=0.1, 0.01", ("0.1", "0.01")),
        ('x="a,b",c', ("a,b", "c")),
        ('t="0:10"', ("0:10",)),
        ("n=0..10..5", ("0", "5", "10")),
        ("n=0..10..4", ("0", "4", "8")),
        ("n=3..1", ("3", "2", "1")),
        ("x=0.1..0.5..0.1", ("0.1", "0.2", "0.3", "0.4", "0.5")),
        ("x=1e-4..3e-4..1e-4", ("0.0001", "0.0002", "0.0003")),
        ("x=-1..1", ("-1", "0", "1")),
        ("x=<b>,{y}", ("<b>", "{y}")),
    ],
)
def test_lists_and_ranges_are_exact(text: str, values: tuple[str, ...]) -> None:
    assert parse_parameter(text).values == values


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("lr", "must be NAME="),
        ("=1", "must be NAME="),
        ("a b=1", "must be NAME="),
        ("lr=", "has no values"),
        ("lr=1,,2", "empty value"),
        ("lr=1,1", "1 twice; remove one"),
        ("lr=0:10:2", r"write FIRST\.\.LAST\.\.STEP.* give 'lr=\"0:10:2\"'"),
        ("lr=range(0,10)", "an unknown distribution"),
        ("lr=1..0..1", "does not lead"),
        ("lr=1..2..0", "does not lead"),
        ("lr=0..1e9..1e-9", "values; at most"),
        ("lr=uniform(1)", "two numbers"),
        ("lr=uniform(2,1)", "larger than the first"),
        ("lr=loguniform(0,1)", "above 0"),
        ("lr=randint(0.5,2)", "whole ones"),
        ("lr=normal(0,0)", "deviation above 0"),
        ("lr=uniform(nan,1)", "finite"),
        ("lr=uniform(0,inf)", "finite"),
        ("lr=uniform(-1e308,1e308)", "finite"),
        ("lr=lograndint(1e-300,1e300)", "whole|ratio"),
        ("lr=loguniform(1e-300,1e300)", "ratio is finite"),
        ("lr=@/nowhere", "cannot be read"),
        ('lr="a', "closed quotes"),
        ("lr=a\nb", "printed|line"),
    ],
)
def test_invalid_values_are_rejected_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        parse_parameter(text)


def test_file_has_a_value_per_line(tmp_path: Path) -> None:
    file = tmp_path / "values.txt"
    file.write_text("\ufeff0.1\n\n 0.2 \n")
    assert parse_parameter(f"lr=@{file}").values == ("0.1", "0.2")
    for content, rule in ((b"\n", "is empty"), (b"\xff\n", "not UTF-8"), (b"1\n" * (1 << 20), "more than")):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=rule):
            parse_parameter(f"lr=@{file}")


@given(share=st.floats(0, 1, exclude_max=True))
def test_drawn_values_are_within_their_bounds(share: float) -> None:
    for text, low, high in (("uniform(2,3)", 2, 3), ("loguniform(1e-4,1)", 1e-4, 1), ("randint(1,6)", 1, 6)):
        assert low <= float(parse_parameter(f"x={text}").draw(share)) <= high
    assert parse_parameter("x=lograndint(1,64)").draw(share) in map(str, range(1, 65))
    assert parse_parameter("x=a,b").draw(share) == ("a" if share < 0.5 else "b")


def test_logarithmic_distribution_is_even_over_decades() -> None:
    assert [parse_parameter("x=loguniform(1e-4,1)").draw(n / 4) for n in range(4)] == ["0.0001", "0.001", "0.01", "0.1"]

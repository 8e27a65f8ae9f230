from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.settings import SettingError
from payload.settings.learning_rate import Decay, Piece, Piecewise, parse_pieces, pieces_text

EPOCHS = st.integers(1, 200)
PIECES_RULE = (
    "must be pieces START-END:RATE or START-END:FIRST..LAST separated by commas, for example 0-5:0.1..1,5-20:1"
)


@given(st.sampled_from(["cosine", "polynomial", "step", "constant"]), EPOCHS, st.floats(0, 1), st.floats(0, 0.5))
def test_decay_climbs_to_its_peak_and_never_rises_again(kind: str, epochs: int, start: float, part: float) -> None:
    rates = Decay(kind=kind, start=start, peak=1.0, warmup_epochs=epochs * part, epochs=epochs, drops=(1, 3))
    points = [epochs * step / 400 for step in range(401)]
    values = [rates.rate(point) for point in points]
    assert all(0 <= value <= 1 + 1e-12 for value in values)
    falling = [value for point, value in zip(points, values, strict=True) if point >= epochs * part]
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(falling))
    if kind != "step":
        assert rates.rate(epochs * part) == pytest.approx(1.0)
    assert rates.rate(epochs) == pytest.approx({"cosine": 0, "polynomial": 0}.get(kind, falling[-1]), abs=1e-12)


def test_decays_are_the_published_formulas() -> None:
    cosine = Decay(kind="cosine", start=0, peak=2, warmup_epochs=0, epochs=10)
    assert cosine.rate(5) == pytest.approx(1.0)
    polynomial = Decay(kind="polynomial", start=0.001, peak=6.4, warmup_epochs=10, epochs=90, power=2)
    assert polynomial.rate(50) == pytest.approx(6.4 / 4)
    assert polynomial.rate(5) == pytest.approx((0.001 + 6.4) / 2)
    # He et al. 2015: 0.1, divided by 10 at epochs 30 and 60.
    step = Decay(kind="step", start=0.1, peak=0.1, warmup_epochs=0, epochs=90, drops=(30, 60))
    assert [step.rate(epoch) for epoch in (0, 29.99, 30, 60, 90)] == pytest.approx([0.1, 0.1, 0.01, 0.001, 0.001])


PIECES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=6)


@given(PIECES)
def test_pieces_are_parsed_as_written(lengths: list[tuple[int, int, int]]) -> None:
    pieces: list[tuple[int, int, float, float]] = []
    at = 0
    for length, first, last in lengths:
        pieces.append((at, at + length, first / 1e4, last / 1e4))
        at += length
    rates = parse_pieces(pieces_text(pieces), at)
    for start, end, low, high in pieces:
        assert rates.rate(start) == pytest.approx(low)
        assert rates.rate((start + end) / 2) == pytest.approx((low + high) / 2)
    assert rates.rate(at) == pytest.approx(pieces[-1][3])


def test_last_piece_can_omit_its_end() -> None:
    rates = parse_pieces("0-10:0.001, 10-:0.0001", 45)
    assert (rates.rate(9.99), rates.rate(10), rates.rate(44.9)) == (0.001, 0.0001, 0.0001)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-10", f"{PIECES_RULE}; invalid: '0-10'"),
        ("0-10:fast", f"{PIECES_RULE}; invalid: '0-10:fast'"),
        ("0-10:0.1..", f"{PIECES_RULE}; invalid: '0-10:0.1..'"),
        ("0-10:0.1;10-20:0.2", f"{PIECES_RULE}; invalid: '0-10:0.1;10-20:0.2'"),
        ("1-10:0.1", "the first piece must start at epoch 0, and each other piece at the end of its predecessor"),
        (
            "0-5:0.1,6-10:0.1",
            "the first piece must start at epoch 0, and each other piece at the end of its predecessor",
        ),
        ("0-5:0.1,5-5:0.1", "each piece must end after it starts"),
        ("0-5:-0.1,5-10:0.1", "rates must be numbers of 0 or more"),
        ("0-5:nan,5-10:0.1", "rates must be numbers of 0 or more"),
        ("0-5:0.1", "ends at epoch 5, but the run has 10; lengthen the last piece"),
    ],
)
def test_invalid_text_is_rejected_with_grammar(text: str, said: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_pieces(text, 10)
    assert str(caught.value) == f"--rate-phases {text}: {said}"


def test_pieces_are_written_as_they_are_read() -> None:
    assert pieces_text([(0, 5, 0.1, 1.0), (5, 20, 1.0, 1.0)]) == "0-5:0.1..1,5-20:1"
    assert parse_pieces("0-5:0.1..1,5-20:1", 20).end == 20
    assert parse_pieces("0-:1", 7) == Piecewise(pieces=(Piece(start=0, end=7, first=1, last=1),))


def test_rate_can_be_zero_but_not_infinite() -> None:
    assert parse_pieces("0-:0", 2).rate(1) == 0
    with pytest.raises(SettingError, match="rates must be numbers of 0 or more"):
        parse_pieces("0-:inf", 2)


def test_run_with_only_warm_up_has_final_rate_of_decay() -> None:
    assert Decay(kind="cosine", start=0, peak=1, warmup_epochs=2, epochs=2).rate(2) == 0
    assert Decay(kind="constant", start=0, peak=1, warmup_epochs=2, epochs=2).rate(2) == 1

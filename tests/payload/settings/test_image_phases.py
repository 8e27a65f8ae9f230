from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.settings import SettingError, Settings
from payload.settings.image_phases import ImagePhase, parse_phases, phases_text

PHASES_RULE = (
    "must be phases START:SIZE/GLOBAL_BATCH[/SMALLEST_CROP][/rectangular] separated by commas, with a size and batch "
    "above 0, for example 0:128/512"
)
SIZES = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 999), st.integers(1, 9999), st.integers(0, 100), st.booleans()),
    min_size=1,
    max_size=5,
)


@given(SIZES)
def test_phases_are_read_as_written(drawn: list[tuple[int, int, int, int, bool]]) -> None:
    phases, start = [], 0
    for length, size, batch, crop, rectangular in drawn:
        phases.append(
            ImagePhase(start=start, size=size, global_batch=batch, smallest_crop=crop / 100, rectangular=rectangular)
        )
        start += length
    assert list(parse_phases(phases_text(phases), smallest_crop=0, rectangular=False)) == phases


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0:128", f"{PHASES_RULE}; invalid: '0:128'"),
        ("0:0/32", f"{PHASES_RULE}; invalid: '0:0/32'"),
        ("0:32/0", f"{PHASES_RULE}; invalid: '0:32/0'"),
        ("0:32/32, 0:32/32/2", f"{PHASES_RULE}; invalid: '0:32/32/2'"),
        ("0:32/32/sideways", f"{PHASES_RULE}; invalid: '0:32/32/sideways'"),
        ("1:32/32", "the first phase must start at epoch 0, and each other phase after its predecessor"),
        (
            "0:32/32,4:64/32,4:96/32",
            "the first phase must start at epoch 0, and each other phase after its predecessor",
        ),
    ],
)
def test_invalid_phases_are_rejected_with_grammar(text: str, said: str) -> None:
    with pytest.raises(SettingError) as caught:
        Settings(image_phases=text)
    assert str(caught.value) == f"--image-phases {text}: {said}"


def test_omitted_values_of_phase_come_from_the_run() -> None:
    plain, own = parse_phases("0:128/512, 4:160/256/0.5/rectangular", smallest_crop=0.08, rectangular=False)
    assert plain == ImagePhase(start=0, size=128, global_batch=512, smallest_crop=0.08)
    assert own == ImagePhase(start=4, size=160, global_batch=256, smallest_crop=0.5, rectangular=True)
    assert not plain.rectangular
    (whole,) = parse_phases("0:128/512/1", smallest_crop=0.08, rectangular=True)
    assert (whole.smallest_crop, whole.rectangular) == (1.0, True)
    (none,) = parse_phases("0:128/512/0", smallest_crop=0.08, rectangular=False)
    assert none.smallest_crop == 0


def test_phases_are_written_in_shortest_form() -> None:
    phases = parse_phases("0:128/512,4:160/256/0.5/rectangular", smallest_crop=0, rectangular=False)
    assert phases_text(phases) == "0:128/512,4:160/256/0.5/rectangular"

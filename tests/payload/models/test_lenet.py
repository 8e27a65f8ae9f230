from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow


def test_it_has_the_published_number_of_weights() -> None:
    from payload.models.lenet import lenet

    # 5*5*20+20, 5*5*20*50+50, 4*4*50*500+500, 500*10+10
    assert lenet((28, 28, 1), 10).count_params() == 520 + 25_050 + 400_500 + 5_010 == 431_080


@pytest.mark.parametrize("shape", [(16, 16, 1), (28, 40, 3)])
def test_it_takes_any_size_that_fits(shape: tuple[int, int, int]) -> None:
    from payload.models.lenet import lenet

    assert lenet(shape, 7)(np.zeros((2, *shape), np.float32)).shape == (2, 7)


def test_a_size_that_does_not_fit_is_refused() -> None:
    from payload.models.lenet import lenet

    with pytest.raises(ValueError, match="8 x 8: LeNet needs at least 16 x 16"):
        lenet((8, 8, 1), 10)

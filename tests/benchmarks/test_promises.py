"""The benchmarks of the promises."""

from __future__ import annotations

import pytest

from benchmarks import promises


@pytest.mark.full
def test_second_synthesis_is_timed_without_the_warnings_of_the_first(capfd: pytest.CaptureFixture[str]) -> None:
    assert 0 < promises.again("16 x p3.16xlarge") < 60
    shown = capfd.readouterr()
    assert shown.out + shown.err == ""

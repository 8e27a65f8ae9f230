"""Only specs that this master has accepted are executed, exactly as they were accepted."""

from __future__ import annotations

import dataclasses

import pytest

from agent.errors import SpecError
from agent.runs import trusted_spec
from tests.factories import make_spec

SPEC = make_spec(run_id="one")


def test_spec_of_the_last_attempt_is_read() -> None:
    assert trusted_spec.accept(SPEC) == SPEC.to_json()
    again = dataclasses.replace(SPEC, notify=("true",))
    trusted_spec.accept(again)
    assert trusted_spec.read("one") == again


def test_unaccepted_or_forgotten_spec_is_not_run() -> None:
    for _ in range(2):
        with pytest.raises(SpecError, match=r"accepted run one, .*; to submit it again: `fab resume one`"):
            trusted_spec.read("one")
        trusted_spec.accept(SPEC)
        trusted_spec.forget("one")
    assert trusted_spec.text_of("one") is None

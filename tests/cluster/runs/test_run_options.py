"""Facts about the options of a launch: what contradicts itself is refused before anything is asked."""

from __future__ import annotations

import pytest

from cluster.errors import UsageError
from cluster.runs.run_options import Preflight


def test_what_is_looked_at_before_a_run_is_chosen_by_one_flag_at_most() -> None:
    chosen = (Preflight(), Preflight(skip_preflight=True), Preflight(full_preflight=True))
    assert [each.mode for each in chosen] == ["auto", "skip", "full"]
    with pytest.raises(UsageError, match="--skip-preflight: leaves out what --full-preflight"):
        Preflight(skip_preflight=True, full_preflight=True)

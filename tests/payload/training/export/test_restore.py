"""The checkpoint used to rebuild a network."""

from __future__ import annotations

from unittest import mock

import pytest

from payload.training.export import restore

pytestmark = pytest.mark.tensorflow


def test_the_named_checkpoint_is_used_else_the_newest_valid_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store, named, newest = mock.Mock(), mock.Mock(), mock.Mock()
    store.storage.address.return_value = "/run"
    store.names.return_value = ("step-1", "step-2")
    store.newest_valid.return_value = (newest, ["step-2: damaged"])
    monkeypatch.setattr(restore, "read_checkpoint", lambda _, name: {"step-1": named}[name])
    assert restore._checkpoint(store, "step-1") == (named, ())
    assert restore._checkpoint(store, "") == (newest, ("step-2: damaged",))
    with pytest.raises(restore.NoCheckpointError, match="/run: no checkpoint step-3; there are step-1, step-2"):
        restore._checkpoint(store, "step-3")
    store.newest_valid.return_value = (None, ["step-2: damaged"])
    with pytest.raises(restore.NoCheckpointError, match="no checkpoint to use; none of 2 is whole: step-2: damaged"):
        restore._checkpoint(store, "")

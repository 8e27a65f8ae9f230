"""User data as text: small, reproducible and quoted, with unchanged scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.user_data import USER_DATA_LIMIT, compact, installed, may_have_gpus, user_data
from tests.stacks.boot.nodelab import Lab


def test_user_data_with_every_script_is_1_kib_below_limit(lab: Lab) -> None:
    workers_own: dict[str, str | bool] = {"scratch": "/s", "heeds_notices": True, "ranks_have_role": True}
    for number, (role, own) in enumerate((("master", {}), ("worker", workers_own)), start=1):
        fullest = lab.node(role, number, mounts=True, lustre="x", agent="/a", **own)
        assert len(user_data(fullest.settings).encode()) < USER_DATA_LIMIT - 1024


def test_user_data_is_reproducible_and_shows_its_settings(lab: Lab) -> None:
    settings = lab.node("master", 1).settings
    assert user_data(settings) == user_data(settings)
    assert "\nexport DEEPCDK_LOGIN_USER=ec2-user\n" in user_data(settings)


@pytest.mark.parametrize("settings", [{}, {"lustre": "x", "scratch": "/s", "agent": "/a", "heeds_notices": True}])
def test_packed_scripts_are_unpacked_unchanged(lab: Lab, settings: dict[str, str | bool]) -> None:
    node = lab.node("worker", 1, mounts=False, **settings)
    assert node.boot()[0] != 0
    unpacked = {path.name: path for path in (node.root / "opt/deepcdk/bin").iterdir()}
    asked = {"lustre", "scratch", "agent", "notice"} if settings else set()
    assert set(unpacked) == {"registry", "firewall", "worker", "leftovers", "node", *asked}
    for name, path in unpacked.items():
        assert path.read_text() == installed(name)
        assert path.stat().st_mode & 0o777 == 0o755


def test_backup_file_of_script_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stacks.user_data.SCRIPTS", tmp_path)
    (tmp_path / "boot.sh").write_text("true\n")
    (tmp_path / "boot.sh~").write_text("false\n")
    assert installed("node") == "true\n"


def test_user_data_quotes_shell_characters(lab: Lab) -> None:
    settings = lab.node("worker", 1, stack="a b; $(touch /tmp/x)").settings
    assert "export DEEPCDK_STACK='a b; $(touch /tmp/x)'\n" in user_data(settings)


def test_compact_keeps_the_interpreter_and_drops_comments_and_indentation() -> None:
    script = "#!/bin/bash\n# why\n\n  # why\n  echo '# kept' # kept\n"
    assert compact(script) == "#!/bin/bash\necho '# kept' # kept\n"


@pytest.mark.parametrize(
    ("instance_type", "gpus"),
    [
        ("p5.48xlarge", True),
        ("g6e.xlarge", True),
        ("gr6.4xlarge", True),
        ("c5.2xlarge", False),
        ("p99.large", True),
        ("c99.large", False),
    ],
)
def test_only_gpu_families_are_checked_for_gpus(instance_type: str, gpus: bool) -> None:
    assert may_have_gpus(instance_type) is gpus

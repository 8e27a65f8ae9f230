"""The origin of a run: the differences from the commit, and a hash that identifies the template."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.spec.submission import Origin
from cluster.aws.price_list import Price
from cluster.cli import VERSION
from cluster.runs import provenance
from cluster.runs.provenance import Roots, git_commit, origin_of, read_diff, template_sha256
from stacks.config import ClusterConfig
from tests.factories import make_instance, make_inventory, make_master_instance


def git(directory: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)


def test_diff_includes_only_this_directory(tmp_path: Path) -> None:
    for name in ("code", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("a = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    assert read_diff(tmp_path / "code") == ""
    for name in ("code", "other"):
        (tmp_path / name / "train.py").write_text("a = 2\n")
    diff = read_diff(tmp_path / "code")
    assert ("-a = 1\n+a = 2\n" in diff, "other" in diff) == (True, False)


def test_template_hash_does_not_depend_on_order_of_keys() -> None:
    one, two = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert template_sha256(one) == template_sha256(two) != template_sha256({**one, "a": 2})


def test_origin_has_spot_instances_and_requested_prices(tmp_path: Path) -> None:
    aws: Any = SimpleNamespace(region="us-east-1", endpoint="", price_region="us-east-1")
    price = Price(usd=0.4, unit="hour", date="2026-11-21", source="EC2")
    prices: Any = SimpleNamespace(
        per_hour=lambda kinds, wait_s: dict.fromkeys(kinds, 1.0),
        dated=lambda kinds: "",
        spot={"c5.2xlarge": price, "p5.48xlarge": price}.get,
    )

    def origin(*, spot: bool) -> Origin:
        instances = (make_master_instance(), make_instance(1), make_instance(2, spot=spot))
        inventory = make_inventory(2, instances=instances)
        roots = Roots(diff="", started_by={}, template_sha256="")
        return origin_of(roots, aws=aws, inventory=inventory, prices=prices, config=ClusterConfig())

    found = origin(spot=True)
    assert (found.spot, found.spot_usd_per_hour) == (("i-00000002",), {"c5.2xlarge": 0.4})
    assert found.spot_prices_of == "2026-11-21"
    found = origin(spot=False)
    assert (found.spot, found.spot_usd_per_hour, found.spot_prices_of) == ((), {}, "")


def test_commit_with_changes_is_marked(tmp_path: Path) -> None:
    assert git_commit(tmp_path) == ""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    (tmp_path / "f").write_text("1")
    for arguments in (["init", "-q"], ["add", "f"], ["commit", "-q", "-m", "One"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True, capture_output=True)
    commit = git_commit(tmp_path)
    assert len(commit) == 40
    (tmp_path / "f").write_text("2")
    assert git_commit(tmp_path) == commit + "+"


def test_code_of_a_wheel_has_a_version_and_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment is often in the user's repository."""
    code = tmp_path / ".venv" / "site-packages" / "deepcdk"
    code.mkdir(parents=True)
    (tmp_path / "own.py").write_text("1")
    (code / "train.py").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "--force", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    (code / "train.py").write_text("2")
    monkeypatch.setattr(provenance, "CODE", code)
    assert (len(git_commit(code)), read_diff(code) != "") == (41, True)
    monkeypatch.setattr(provenance, "IS_INSTALLED", True)
    assert (git_commit(code), read_diff(code)) == (f"deepcdk-{VERSION}", "")
    assert len(git_commit(tmp_path)) == 41

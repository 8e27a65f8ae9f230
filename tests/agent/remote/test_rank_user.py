"""The user of the ranks: the same number everywhere, a separate home, and no way to more privileges."""

from __future__ import annotations

import grp
import pwd
from pathlib import Path

import pytest

from agent.remote import rank_user
from agent.remote.rank_user import RankUserError
from agent.spec.nodes import RANK_HOME, RANK_UID, RANK_USER, RUN_GIDS, RUN_GROUP

PROJECT = Path(__file__).resolve().parents[3]


def entry(name: str, uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", "/bin/bash"))


def test_boot_creates_the_login_user_of_the_agent() -> None:
    boot = (PROJECT / "stacks" / "scripts" / "boot.sh").read_text()
    assert f"--uid {RANK_UID} " in boot
    assert f"rank_home=/home/{RANK_USER}\n" in boot
    assert f"/home/{RANK_USER}/files" == RANK_HOME
    assert 'chown 60900:60900 "$root$rank_home/files"' in boot
    assert f'/ssh" -l {RANK_USER} ' in (PROJECT / "agent" / "bin" / "as_rank" / "ssh").read_text()


def test_node_without_user_of_ranks_or_with_other_user_of_this_name_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(name: str) -> pwd.struct_passwd:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", nobody)
    with pytest.raises(RankUserError, match=r"^worker2 has no user deepcdk-rank for ranks; do: replace it$"):
        rank_user.check("worker2", "replace it")
    monkeypatch.setattr(pwd, "getpwnam", lambda name: entry(name, 1001))
    with pytest.raises(RankUserError, match="has the ID 1001 instead of 60900; do: replace it"):
        rank_user.check("deeplearning-worker2", "replace it")
    monkeypatch.setattr(pwd, "getpwnam", lambda name: entry(name, RANK_UID))
    rank_user.check("deeplearning-worker2", "replace it")


def test_master_without_the_groups_of_runs_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(gid: int) -> grp.struct_group:
        raise KeyError(gid)

    shared = (PROJECT / "stacks" / "scripts" / "master_setup.sh").read_text()
    assert f"for gid in {{{RUN_GIDS[0]}..{RUN_GIDS[-1]}}}; do" in shared
    monkeypatch.setattr(grp, "getgrgid", nobody)
    with pytest.raises(RankUserError, match=r"^this master has no groups for runs .*; do: replace it$"):
        rank_user.check_groups("this master", "replace it")
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((f"{RUN_GROUP}99", "*", gid, [])))
    rank_user.check_groups("this master", "replace it")


def test_node_without_firewall_since_boot_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded = tmp_path / "deepcdk-firewall"
    monkeypatch.setattr(rank_user, "FIREWALL_LOADED", loaded)
    refusal = "^worker2 has no firewall between ranks .*; do: replace it$"
    with pytest.raises(RankUserError, match=refusal):
        rank_user.check_firewall("worker2", "replace it")
    loaded.write_text("the id of an earlier boot\n")
    with pytest.raises(RankUserError, match=refusal):
        rank_user.check_firewall("worker2", "replace it")
    loaded.write_text(Path("/proc/sys/kernel/random/boot_id").read_text())
    rank_user.check_firewall("worker2", "replace it")


def test_home_variable_of_ranks_and_of_other_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry("ec2-user", uid))
    assert rank_user.variables() == {"HOME": str(tmp_path), "USER": "ec2-user", "LOGNAME": "ec2-user"}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry(RANK_USER, uid))
    files = "/home/deepcdk-rank/files"
    assert rank_user.variables() == {"HOME": files, "USER": RANK_USER, "LOGNAME": RANK_USER}

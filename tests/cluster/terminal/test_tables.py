"""Facts about tables and JSON: what is unknown is called unknown, and nothing is cut off in a pipe."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path

import pytest

from cluster.aws.inventory import Instance, Inventory, Stack
from cluster.terminal.tables import (
    fitted,
    plain_lines,
    print_table,
    record_table,
    result_table,
    runs_table,
    status_document,
    status_table,
)

LAUNCHED = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)
NOW = LAUNCHED + datetime.timedelta(minutes=5)
STACK = Stack(
    name="deepcdk", status="CREATE_COMPLETE", master_group="m", worker_group="w", efs_mount="/mnt/efs", bucket="b",
    login_user="ec2-user", max_workers=16,
)  # fmt: skip


def instance(instance_id: str, role: str, kind: str, lifecycle: str = "InService") -> Instance:
    return Instance(
        id=instance_id, role=role, state="running", lifecycle=lifecycle, type=kind, private_ip="10.0.0.5",
        public_ip="198.18.1.2" if role == "master" else "", zone="us-east-1a", launched=LAUNCHED,
    )  # fmt: skip


INVENTORY = Inventory(
    stack=STACK,
    desired_workers=2,
    instances=(instance("i-0", "master", "t3.medium"), instance("i-1", "worker", "c5.2xlarge", "Terminating")),
)
PRICES = {"t3.medium": 0.0416, "c5.2xlarge": 0.34}


def test_a_node_has_address_state_age_and_price() -> None:
    table = status_table(INVENTORY, PRICES, NOW)
    assert table.rows[0] == (
        "master", "i-0", "t3.medium", "running", "10.0.0.5", "198.18.1.2", "us-east-1a", "5:00", "$0.042/h",
    )  # fmt: skip
    assert table.rows[1][3] == "running (Terminating)"
    assert table.footer == (
        "workers: 1 of 2 wanted, 16 at most",
        "instances together: $0.382/h, $0.03 since their launch",
    )


def test_a_spot_instance_is_told_and_costs_the_known_price_at_most() -> None:
    spot = dataclasses.replace(INVENTORY.instances[1], spot=True)
    table = status_table(dataclasses.replace(INVENTORY, instances=(INVENTORY.instances[0], spot)), PRICES, NOW)
    assert (table.rows[1][2], table.rows[1][8]) == ("c5.2xlarge (spot)", "at most $0.340/h")
    assert table.rows[0][8] == "$0.042/h"
    assert table.footer[1].startswith("instances together: at most $0.382/h")
    unknown = status_table(dataclasses.replace(INVENTORY, instances=(spot,)), {}, NOW)
    assert unknown.rows[0][8] == "unknown"


def test_one_unknown_price_makes_the_total_unknown() -> None:
    assert status_table(INVENTORY, {"t3.medium": 0.0416}, NOW).footer[1] == "instances together: unknown"


def test_the_document_holds_the_same_as_numbers() -> None:
    document = json.loads(json.dumps(status_document(INVENTORY, PRICES, NOW)))
    assert document["nodes"][0]["age_s"] == 300
    assert document["nodes"][0]["launched"] == "2026-11-20T12:00:00+00:00"
    assert document["usd_per_hour"] == pytest.approx(0.3816)
    assert status_document(INVENTORY, {}, NOW)["usd_per_hour"] is None


def test_runs_come_newest_first_with_short_reasons() -> None:
    base = {"started": 0.0, "updated": 61.0, "hosts": ["w1", "w2"], "reason": "", "epoch": None}
    table = runs_table(
        [
            {**base, "run_id": "old", "state": "failed", "reason": "x" * 100 + "\nmore"},
            {**base, "run_id": "new", "state": "succeeded", "epoch": {"epoch": 5, "test_accuracy": 0.9812}},
        ]
    )
    assert table.rows[0] == ("new", "succeeded", "2", "5", "98.12%", "1:01", "")
    assert len(table.rows[1][-1]) == 60


def test_a_waiting_run_shows_its_place_in_the_queue() -> None:
    waiting = {"run_id": "one", "state": "queued", "position": 2, "started": 0, "updated": 61, "epoch": None}
    assert runs_table([waiting]).rows[0] == ("one", "queued 2", "0", "-", "-", "-", "")


def test_a_result_shows_its_plain_values(tmp_path: Path) -> None:
    values = {"recipe": "digits", "test_accuracy": 0.98333, "steps": 1200, "hosts": ["w1", "w2"], "finished": 0.0,
              "versions": {"keras": "3"}, "weights_agree": True, "data_dir": None,
              "epoch_seconds": [2.51234, 0.25]}  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(values))
    assert {row[0]: row[1] for row in result_table(tmp_path).rows} == {
        "recipe": "digits", "test accuracy": "98.33%", "steps": "1,200", "hosts": "w1, w2",
        "finished": "1970-01-01 00:00:00 UTC", "weights agree": "yes",
        "epoch seconds": "2.512, 0.25",
    }  # fmt: skip


def test_a_run_without_a_result_is_told(tmp_path: Path) -> None:
    assert result_table(tmp_path).rows == (("state", "unknown"),)
    (tmp_path / "state.json").write_text('{"state": "stopped", "reason": "stopped on request"}')
    assert result_table(tmp_path).rows == (("state", "stopped"), ("reason", "stopped on request"))
    (tmp_path / "state.json").write_text('{"state": "running", "reason": ""}')
    assert result_table(tmp_path).rows == (("state", "running"),)


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    table = status_table(INVENTORY, PRICES, NOW)
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(plain_lines(table))
    assert lines[1].split()[:3] == ["role", "instance", "type"]


def test_a_narrow_terminal_gets_whole_lines_without_what_can_be_spared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = status_table(INVENTORY, PRICES, NOW)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    print_table(table)
    shown = capsys.readouterr().out
    assert "us-east-1a" not in shown
    assert "198.18.1.2" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert fitted(table, 1000) == table
    assert fitted(table, 10).columns == ("role", "instance", "state", "public", "age", "price")


def test_text_that_looks_like_markup_is_printed_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(runs_table([{"run_id": "[/red]", "state": "failed", "started": 0, "updated": 0, "reason": "[bold"}]))
    assert "[/red]" in capsys.readouterr().out


def test_a_record_names_what_ran_where_and_how_it_ended() -> None:
    record = {
        "run_id": "one", "directory": "/mnt/efs/runs/one", "attempts": 2, "files": 3, "bytes": 2048, "result": None,
        "checkpoints": ["step-00000001", "step-00000007"],
        "state": {"state": "failed", "reason": "no room", "started": 0, "updated": 61, "exit_code": 1,
                  "last_lines": ["[bold]disk full"]},
        "spec": {"command": ["-m", "payload.train", "--data-dir", "/a b"], "payload": "0123456789abcdef",
                 "hosts": [{"name": "deeplearning-worker1", "address": "10.0.1.1", "slots": 8}],
                 "program": "fedcba9876543210"},
        "launch": {"command": ["python", "-m", "agent.launch.horovodrun", "-H", "a b:1"]},
    }  # fmt: skip
    table = record_table(record)
    rows = {row[0]: row[1] for row in table.rows}
    assert (rows["state"], rows["time"]) == ("failed: no room", "1:01, attempt 2")
    assert rows["checkpoints"] == "2, last step-00000007"
    assert rows["nodes"] == "deeplearning-worker1 (10.0.1.1, 8 slots)"
    assert rows["command"] == "python -m payload.train --data-dir '/a b'"
    assert rows["launched"] == "python -m agent.launch.horovodrun -H 'a b:1'"
    assert rows["program"] == "fedcba9876543210"
    assert table.footer == ("  [bold]disk full",)

"""The idle alarm and a waiting run, on a cloud with metrics that run 60 times as fast.

After 70 minutes without work, which take 75 s here, the alarm terminates the workers. A live run publishes its metric
each minute.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from cluster import demo
from tests.e2e.conftest import start_cloud
from tests.waiting import eventually

SETTINGS = ("idle_minutes=70", "idle_cpu_percent=100", "workers=1")
TWIN = "without-live-runs"


def test_alarm_that_would_fire_without_the_live_run_does_not_terminate_its_worker(tmp_path: Path) -> None:
    """Source: dstack #890."""
    settings = [*demo.settings(2), *(word for setting in SETTINGS for word in ("--set", setting))]
    with start_cloud(f"idle{os.getpid()}", "--metrics-speed", "60") as cloud:
        cloud.laptop("fab", "up", "--yes", *settings)
        (tmp_path / "empty").touch()
        program = ("--payload", str(tmp_path), "--entry", "sleep 3600", "--launcher", "plain", "--skip-preflight")
        cloud.laptop("fab", "train", "--nodes", "1", "--yes", "--detach", *program, *settings)
        (alarm,) = cloud.ask("cloudwatch", "describe_alarms", AlarmNamePrefix="deepcdk-GuardIdle")["MetricAlarms"]
        copied = ("Metrics", "ComparisonOperator", "Threshold", "EvaluationPeriods", "TreatMissingData")
        text = json.dumps({key: alarm[key] for key in copied}).replace('"LiveRuns"', '"Nothing"')
        cloud.ask("cloudwatch", "put_metric_alarm", AlarmName=TWIN, **json.loads(text))

        def state(name: str) -> str:
            (found,) = cloud.ask("cloudwatch", "describe_alarms", AlarmNames=[name])["MetricAlarms"]
            return str(found["StateValue"])

        time.sleep(60)  # Nothing happens before that, and each check uses as much CPU time as the cloud.
        eventually(lambda: state(TWIN) == "ALARM")
        run = json.loads(cloud.laptop("fab", "show", "--json", *settings).stdout)
        assert (state(alarm["AlarmName"]), run["state"]["state"]) == ("OK", "running")
        assert not run["course"].get("restarts")
        assert len(cloud.instances("worker")) == 1

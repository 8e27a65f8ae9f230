"""All settings and versions in a run's record, by group."""

from __future__ import annotations

import collections
import shlex
from collections.abc import Mapping
from typing import Any, Final

from agent.spec.run import with_interpreter
from cluster.report.run_files import Document, RunFiles, document
from cluster.report.shown_values import date_text, plain, value_text
from cluster.terminal.units import amount

RUN, TRAINING, HOROVOD, RANKS = "run", "training", "Horovod", "rank 0"
VERSIONS, CLUSTER = "versions", "cluster"
GROUPS: Final = (RUN, TRAINING, HOROVOD, RANKS, VERSIONS, CLUSTER)

Settings = dict[str, dict[str, str]]
"""Values by group and name."""


def settings_of(files: RunFiles) -> Settings:
    """Return the settings and versions of a run as texts to show, by group and name. Empty groups are left out."""
    record = files.record
    spec, result, origin = (document(record.get(name)) for name in ("spec", "result", "origin"))
    runtime = document(document(record.get("course")).get("runtime"))
    settings = document(result.get("settings")) or document((files.settings or {}).get("settings"))
    knobs = {"controller": spec.get("controller"), "placement": spec.get("placement"), **document(spec.get("knobs"))}
    groups: dict[str, Mapping[str, Any]] = {
        RUN: _run(record, spec, result),
        TRAINING: dict(sorted(settings.items())),
        HOROVOD: knobs if spec else {},
        RANKS: document(result.get("arrangement")),
        # The versions that rank 0 imported are exact. Those of CUDA, cuDNN, NCCL and the driver are from the
        # pre-flight.
        VERSIONS: {**document(runtime.get("versions")), **document(result.get("versions"))},
        CLUSTER: {**_deployment(origin), **dict(sorted(document(origin.get("config")).items()))},
    }
    return {
        title: {plain(name): value_text(value) for name, value in values.items()}
        for title, values in groups.items()
        if values
    }


def _run(record: Document, spec: Document, result: Document) -> dict[str, Any]:
    """Return the run's state, code, command and files, by name. Unknown values are left out."""
    state, launch = record["state"], document(record.get("launch"))
    course, origin = document(record.get("course")), document(record.get("origin"))
    runtime, diff_bytes = document(course.get("runtime")), origin.get("diff_bytes")
    command, program = spec.get("command"), spec.get("program")
    words = spec.get("launcher") or (with_interpreter("python", command) if command else ())
    found = {
        "run": record["run_id"],
        "state": state["state"],
        "reason": state.get("reason"),
        "started": date_text(state["started"]),
        "attempts": record["attempts"],
        "exit code": state.get("exit_code"),
        "command": shlex.join(words),
        "launched": shlex.join(launch["command"]) if launch.get("command") else None,
        "recipe": None if program else result.get("recipe") or spec.get("recipe"),
        "variant": result.get("variant"),
        "program": program,
        "commit": spec.get("git_commit"),
        "changed since the commit": f"{amount(diff_bytes)} in source.diff" if diff_bytes else None,
        "payload": spec.get("payload"),
        "agent": spec.get("agent"),
        "runtime": runtime.get("path"),
        "runtime for": runtime.get("kind"),
        "parameters": f"{result['parameters']:,}" if isinstance(result.get("parameters"), int) else None,
        "weights (SHA-256)": result.get("weights_sha256"),
        "resumed from": result.get("resumed_from"),
        "checkpoints": len(record["checkpoints"]) or None,
        "size": f"{record['files']} files, {amount(record['bytes'])}",
        "directory": record["directory"],
        "copy": course.get("archive"),
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def _deployment(origin: Document) -> dict[str, Any]:
    """Return stack, region, instances and prices of the run's cluster, by name. Unknown values are left out."""
    count = collections.Counter(map(str, document(origin.get("instance_types")).values()))
    found = {
        "stack": origin.get("stack"),
        "region": origin.get("region"),
        "instances": ", ".join(f"{number} {kind}" for kind, number in sorted(count.items())),
        "prices, USD/hour": document(origin.get("usd_per_hour")),
        "prices of": origin.get("prices_of"),
        "template (SHA-256)": origin.get("template_sha256"),
    }
    return {name: value for name, value in found.items() if value}

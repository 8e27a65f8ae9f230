"""The task that looks at everything before it costs."""

from __future__ import annotations

import json as json_format
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from cluster.cli.task import JSON, KEY, PROJECT, SET, guarded, say
from cluster.session import Session
from cluster.terminal.status_line import doing


@task(iterable=["set_"], help={"json": JSON, "set": SET, "key": KEY})
@guarded
def doctor(c: Context, set_: list[str], json: bool = False, key: str = "") -> None:
    """
    Check what a deployment needs of account and laptop: credentials, key, images, zones, quotas, room.

    It changes nothing and costs nothing. It ends with 1 where something would fail.

    Example: fab doctor --set worker_instance_type=p5.48xlarge --set efa=true
    """
    # Its many modules are of no use to the other tasks, nor to `fab --list`.
    from cluster.doctor import examination as examiner
    from cluster.doctor.finding import FAIL, Subject
    from cluster.terminal import tables

    session = Session(PROJECT, set_, key=key)
    subject = Subject(aws=session.aws, config=session.config, project=PROJECT, home=Path.home(), key=key)
    with doing("asking AWS"):
        findings = examiner.examine(subject)
    if json:
        say(json_format.dumps(examiner.document(findings), indent=1))
    else:
        tables.print_table(examiner.findings_table(session.config.stack_name, findings))
    if any(each.state == FAIL for each in findings):
        raise Exit(code=1)

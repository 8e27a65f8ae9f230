"""The tasks: `fab up`, `fab train --nodes 2`, `fab fetch`, `fab down`.

`fab --list` lists them, `fab --help TASK` explains one. Their bodies lie in `cluster.tasks`, a noun each.
"""

from __future__ import annotations

from invoke.collection import Collection

from cluster.tasks.nodes import run, scale, ssh, ssh_config
from cluster.tasks.runs import fetch, logs, rm, runs, show, stop
from cluster.tasks.stack import down, status, up
from cluster.tasks.training import attach, push, resume, train

CLUSTER = (up, down, status, scale, ssh, ssh_config, run)
RUNS = (push, train, attach, resume, logs, stop, fetch, runs, show, rm)

ns = Collection(*CLUSTER, *RUNS)

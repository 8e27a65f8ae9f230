"""The tasks: `fab up`, `fab train --nodes 2`, `fab fetch`, `fab down`.

`fab --list` lists them, `fab --help TASK` explains one. Their bodies lie in `cluster.tasks`, a noun each.
"""

from __future__ import annotations

from invoke.collection import Collection

from cluster.tasks.nodes import run, scale, ssh, ssh_config
from cluster.tasks.runs import fetch, logs, runs, stop
from cluster.tasks.stack import down, status, up
from cluster.tasks.training import attach, push, train

ns = Collection(up, down, status, scale, ssh, ssh_config, run, push, train, attach, logs, stop, fetch, runs)

"""The tasks: `fab up`, `fab train --nodes 2`, `fab fetch`, `fab down`.

`fab --list` lists them, `fab --help TASK` explains one. Their bodies lie in `cluster.tasks`, a noun each.
"""

from __future__ import annotations

from fabric.main import program
from invoke.collection import Collection
from invoke.exceptions import Exit

from cluster.tasks import positionals, spelling
from cluster.tasks.data import stage_data
from cluster.tasks.examination import doctor
from cluster.tasks.lifetime import down, up
from cluster.tasks.nodes import replace, run, scale, ssh, ssh_config
from cluster.tasks.recipes import recipes
from cluster.tasks.release import release
from cluster.tasks.runs import fetch, logs, rm, runs, show, stop
from cluster.tasks.stack import status
from cluster.tasks.training import push, train
from cluster.tasks.views import notebook, tensorboard
from cluster.tasks.watching import attach, resume

CLUSTER = (doctor, up, down, status, scale, release, replace, ssh, ssh_config, run, stage_data, notebook)
RUNS = (recipes, push, train, attach, resume, logs, stop, fetch, runs, show, tensorboard, rm)

ns = Collection(*CLUSTER, *RUNS)

# Fabric has parsed its own flags by now, and will parse the tasks' words next.
if core := getattr(program, "core", None):
    contexts = positionals.contexts_of(ns)
    core.unparsed = positionals.with_flags(core.unparsed, contexts)
    if complaint := spelling.complaint(core.unparsed, contexts, core[0].flags):
        raise Exit(complaint, code=1)

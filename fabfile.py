"""The tasks: `fab up`, `fab train --nodes 2`, `fab fetch`, `fab down`.

`fab --list` lists them, and `fab --help TASK` explains one. Their code is in `cluster.tasks`, and
`cluster.cli.program` parses the command line.
"""

from __future__ import annotations

from cluster.cli import task_modules

ns = task_modules.collection()

"""The tasks: `fab up`, `fab train --nodes 2`, `fab fetch`, `fab down`.

`fab --list` lists them, `fab --help TASK` explains one. Their bodies lie in `cluster.tasks`, a noun each; the command
line is that of `cluster.cli.program`.
"""

from __future__ import annotations

from cluster.cli import loader

ns = loader.collection()

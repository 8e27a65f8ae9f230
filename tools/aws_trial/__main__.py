"""Start the trial: `python -m tools.aws_trial`."""

from __future__ import annotations

import sys

from tools.aws_trial.cli import main

sys.exit(main())

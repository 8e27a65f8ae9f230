"""Run the benchmarks: python -m benchmarks."""

import sys

from benchmarks.promises import main

sys.exit(main())

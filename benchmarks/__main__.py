"""Run the benchmarks: python -m benchmarks."""

import sys

from benchmarks.whole_path import main

sys.exit(main())

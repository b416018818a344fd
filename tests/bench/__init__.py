"""Tests of the pure parts of the benchmarks, and of the script for wrk."""

import sys
from pathlib import Path

# The benchmarks are scripts beside each other, no package. At the end of the path they can hide nothing.
sys.path.append(str(Path(__file__).parents[2] / "bench"))

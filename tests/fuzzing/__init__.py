"""Mutated model files by the thousand, each opened and, where it opens, run: `python -m tests.fuzzing --help`.

Whatever a file holds, Ringlet runs it or refuses it in one line. The watch is on crashes, hangs, memory, and errors
that are not Ringlet's own. What is opened depends on the seed and the case's number alone: a finding can be repeated.
"""

import sys
from pathlib import Path

# The helpers of the tests are modules without a package.
sys.path.append(str(Path(__file__).resolve().parent.parent))

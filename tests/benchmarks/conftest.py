"""The benchmarks lie beside the package and are not installed: they are found from the repository's root."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

"""Tests import serverkit and commandkit from beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from commandkit import nothing_is_left, started  # noqa: F401

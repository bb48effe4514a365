"""``python -m tests.crash``: the kill-point table."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from table import main

sys.exit(main())

"""``python -m patchkit``."""

from patchkit.cli import main

if __name__ == "__main__":
    main()

"""``python -m fp16sim``: the command line."""

from __future__ import annotations

import sys

from fp16sim.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Run the command line by `python -m lightbert`."""

import sys

from lightbert.cli import main

sys.exit(main())

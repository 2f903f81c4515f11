"""Run the command line, by `lightbert` or `python -m lightbert`."""

import signal
import sys

# Until the command line handles it, Ctrl-C ends the process without the traceback of an import.
signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Import the command line and run it."""
    from lightbert.cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    sys.exit(main())

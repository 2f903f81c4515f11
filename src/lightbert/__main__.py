"""Run the command line, by `lightbert` or `python -m lightbert`."""

import signal
import sys

# Until the command line handles it, Ctrl-C ends the process without the traceback of an import.
signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Import the command line and run it."""
    try:
        from lightbert.cli import main
    except MemoryError:
        return _fail()
    except ImportError as error:
        # A library of Python's own that can't be loaded for lack of memory; the message is the dynamic linker's.
        if "allocate" not in str(error) and "map segment" not in str(error):
            raise
        return _fail()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


def _fail() -> int:
    sys.stderr.write("lightbert: the memory is not sufficient to start; raise the limit (ulimit -v), or free memory\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""The command `warmcore`: the program, as a part of the package's module."""

import os
import signal
import sys

from ._native import program


def main():
    """Does what the command line asks for, and gives the exit code."""
    # As the system starts a program: Python ignores one of these signals, and raises an exception late by the other.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    called, *words = sys.argv
    if called == __file__:
        called = os.path.join(os.path.dirname(sys.executable), "warmcore")
    return program([os.path.abspath(called), *words], sys.executable)


if __name__ == "__main__":
    sys.exit(main())

"""What the program `warmcore` has done in Python: the far side of `study run --dask`, and `tune`."""

import os
import signal
import sys
import threading


def end_with_the_program():
    """Ends this as Ctrl-C does once the program is gone, which holds the other end of the standard input and writes nothing to it."""

    def watch():
        # `sys.stdin` would be locked when the interpreter ends.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=watch, daemon=True).start()


def main(words):
    """The exit code of work that the program asks for; what comes of it goes to standard output."""
    try:
        match words:
            case ["relay", address]:
                from ._dask import relay

                return relay(address)
            case ["tune", *rest]:
                from ._tune import command

                end_with_the_program()
                return command(rest)
    except KeyboardInterrupt:
        # The program has the signal too, and says so.
        return 130
    print("this module serves the program `warmcore`; see `warmcore --help`", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

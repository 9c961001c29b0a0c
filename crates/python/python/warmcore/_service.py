"""What the program `warmcore` has done in Python: the far side of `study run --dask`, and `tune`."""

import sys


def main(words):
    """The exit code of work that the program asks for; what comes of it goes to standard output."""
    try:
        match words:
            case ["relay", address]:
                from ._dask import relay

                return relay(address)
            case ["tune", *rest]:
                from ._tune import command

                return command(rest)
    except KeyboardInterrupt:
        # The program has the signal too, and says so.
        return 130
    print("this module serves the program `warmcore`; see `warmcore --help`", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

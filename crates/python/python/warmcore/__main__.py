"""What the program `warmcore` has done in Python: the far side of `study run --dask`, and `tune`."""

import sys


def main(words):
    match words:
        case ["relay", address]:
            from ._dask import relay

            return relay(address)
        case ["tune", *rest]:
            from ._tune import command

            return command(rest)
    print("this module serves the program `warmcore`; see `warmcore --help`", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How far something is, as a line on standard error that terminals and notebooks write over."""

import sys


class Line:
    """Called with what is finished and with the total; of a tuning also with the best ratio so far."""

    def __init__(self, things):
        self.things = things

    def __call__(self, finished, total, best=None):
        so_far = "" if best is None else f", the best has {best:.4g} times the default's"
        print(f"\r{finished} of {total} {self.things}{so_far}", end="\n" if finished == total else "", file=sys.stderr, flush=True)

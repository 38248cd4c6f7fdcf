"""Pauses of AWS's clients between two looks, cut short: against AWS they take up to 30 seconds.

Nothing else of a client changes.  As a program it runs a client's module: `short_pauses.py awscli
WORD…`.
"""

from __future__ import annotations

import runpy
import sys
import time

LONGEST_S = 0.25


def shorten() -> None:
    """Let no pause of this process take longer than LONGEST_S."""
    pause = time.sleep
    time.sleep = lambda seconds: pause(min(seconds, LONGEST_S))


if __name__ == "__main__":
    shorten()
    _, name, *words = sys.argv
    sys.argv = [name, *words]
    runpy.run_module(name, run_name="__main__", alter_sys=True)

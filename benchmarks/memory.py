"""Compare memory budgets with start-up logs of real servers.

The logs are those of `tests/support/data/sizing/startups.csv`.

Fetches nothing.  For each start the cache that was predicted, what the log says, and by how
much they differ; for each that failed, whether the budget says so.  The last line of stdout is
one JSON object with every figure.

    python benchmarks/memory.py
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.judging import all_at_most, verdict
from packager.core.units import GIB
from tests.support.startups import budget_of, error_of, is_compared, startups

TARGETS = {"median": 0.02, "worst": 0.10, "wrongly_fitting": 0}


def main() -> int:
    """Print a row for each start, then the figures; return 1 where a target is missed."""
    errors: dict[str, float] = {}
    wrongly_fitting = wrongly_refused = refused = 0
    print(f"{'start':<58} {'predicted':>10} {'log':>10} {'error':>7}")
    for startup in startups():
        budget = budget_of(startup)
        if not startup.started:
            refused += 1
            wrongly_fitting += budget.fits
            print(f"{startup.id:<58} {'fits' if budget.fits else 'refused':>10} {'refused':>10}")
            continue
        error = error_of(startup)
        pool = f"{budget.kv_pool_bytes / GIB:.2f} GiB"
        left_out = "" if is_compared(startup) else f"  {startup.note}"
        print(
            f"{startup.id:<58} {pool:>10} {startup.kv_bytes / GIB:>6.2f} GiB "
            f"{100 * error:>+6.1f}%{left_out}"
        )
        if is_compared(startup):
            errors[startup.id] = error
            wrongly_refused += not budget.fits
    sizes = sorted(map(abs, errors.values()))
    figures = {
        "starts": len(errors),
        "refused": refused,
        "median": round(statistics.median(sizes), 5),
        "p90": round(sizes[int(0.9 * len(sizes))], 5),
        "worst": round(sizes[-1], 5),
        "bias": round(statistics.mean(errors.values()), 5),
        "wrongly_fitting": wrongly_fitting,
        "wrongly_refused": wrongly_refused,
    }
    found = {"benchmark": "memory", **figures, "targets": TARGETS}
    found |= verdict(all_at_most(figures, TARGETS))
    print(json.dumps(found))
    return 0 if found["targets_met"] else 1


if __name__ == "__main__":
    sys.exit(main())

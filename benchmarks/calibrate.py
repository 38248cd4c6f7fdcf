"""Measure how well `plan --measured` predicts between, and beyond, the points it was given.

    python benchmarks/calibrate.py --data DIR

fetches nothing; `speed_data` tells what DIR holds.  Of each measured curve with five or more
numbers of requests, the first, the middle and the last, or every other one, are given; the others
are held against the fitted prediction and its band.  Then the last is held against a fit to all
others.  The coefficients have seen these curves; `as TGI` predicts them with coefficients that
have not, as for an engine without measurements.  The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from judging import Judged, at_least, at_most, verdict
from speed_data import SpeedPoint, read_points

from packager.core.workload import Workload
from packager.estimate.performance.calibration import Measured, calibrate
from packager.estimate.performance.predict import error_band, predict_point
from packager.estimate.performance.scale import UNSCALED, Fit, Scale

LEAST_PLACES = 5
HELD = 0.90  # of the points that were not given, inside the band
MEDIAN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A point that was not given: how far off it is, fitted and before, and its band."""

    error: float
    before: float
    band: float


def curves(points: Sequence[SpeedPoint], engine: str) -> Iterator[tuple[Measured, ...]]:
    """Return each curve's points by number of requests, the first measurement of each."""
    found: dict[tuple[str, bool], dict[int, Measured]] = defaultdict(dict)
    for point in points:
        measured = Measured(
            setup=replace(point.setup, engine=engine) if engine else point.setup,
            workload=Workload(input_tokens=point.input_tokens, output_tokens=point.output_tokens),
            concurrency=round(point.batch),
            tpot_s=point.tpot_s,
            ttft_s=point.ttft_s,
        )
        key = (point.curve, point.setup.expert_parallel)
        found[key].setdefault(measured.concurrency, measured)
    for places in found.values():
        if len(places) >= LEAST_PLACES:
            yield tuple(measured for _, measured in sorted(places.items()))


def held(point: Measured, fit: Fit) -> Held:
    def error(scale: Scale) -> float:
        found = predict_point(point.setup, point.workload, point.concurrency, scale=scale)
        return abs(point.tpot_s / found.tpot_s - 1)

    return Held(error=error(fit.scale), before=error(UNSCALED), band=fit.band_at(point.concurrency))


def inside(curve: tuple[Measured, ...], *, every: bool) -> list[Held]:
    """Fit to some points of a curve; return the others, all of which lie between them."""
    last = len(curve) - 1
    given = {*range(0, last, 2), last} if every else {0, len(curve) // 2, last}
    fit = calibrate([curve[place] for place in given], error_band(curve[0].setup))
    return [held(point, fit) for place, point in enumerate(curve) if place not in given]


def beyond(curve: tuple[Measured, ...]) -> list[Held]:
    """Fit to all points but the last; return that."""
    return [held(curve[-1], calibrate(curve[:-1], error_band(curve[0].setup)))]


def figures(found: Sequence[Held]) -> dict[str, float]:
    errors = sorted(one.error for one in found)
    return {
        "points": len(found),
        "median": round(median(errors), 4),
        "p90": round(errors[int(0.9 * len(errors))], 4),
        "before": round(median(one.before for one in found), 4),
        "band": round(median(one.band for one in found), 4),
        "held": round(sum(one.error <= one.band for one in found) / len(found), 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a copy of the measurements")
    points = read_points(parser.parse_args().data)
    report: dict[str, object] = {}
    rows: list[Judged] = []
    print(f"{'in percent':30}{'points':>7} median    p90 before   band   held")
    for name, engine in (("", ""), (", as TGI", "tgi")):
        whole = list(curves(points, engine))
        for title, found in (
            ("3 points given", [one for curve in whole for one in inside(curve, every=False)]),
            ("every other given", [one for curve in whole for one in inside(curve, every=True)]),
            ("beyond the last", [one for curve in whole for one in beyond(curve)]),
        ):
            row = figures(found)
            report[title + name] = row
            cells = " ".join(f"{100 * value:6.1f}" for value in list(row.values())[1:])
            print(f"{title + name:30}{row['points']:7} {cells}")
            rows.append(at_least(f"{title}{name}: held", row["held"], HELD))
            if not title.startswith("beyond"):
                rows.append(at_most(f"{title}{name}: median", row["median"], MEDIAN))
    found = {"benchmark": "calibrate", **report, "curves": len(whole), **verdict(rows)}
    print(json.dumps(found))
    return 0 if found["targets_met"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""What measurements say of the edges of the speed table: beyond its data, and against its order.

`fit_speed` writes both into the table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from speed_data import SpeedPoint

from packager.estimate.performance.devices import figures_of
from packager.estimate.performance.speed_table import Form

# Points up to so many requests or tokens are fitted, and those beyond predicted.
CUTS = {"requests": (8.0, 16.0, 32.0), "tokens": (1300.0, 2100.0, 3100.0, 5200.0)}
LEAST_BAND = 0.01  # of what was seen, so that a share of it means something
FEW = 10  # points, below which a doubling tells nothing
# 9 of 10 times of one point, device and version of the engine that were measured again differ by
# less: 185 such points, copies left out.
SCATTER = 0.10
LEAST_GROWTH = 0.1  # of a band with each doubling; ours: no measurement proves that it stays

Server = tuple[str, Form, str, str]  # engine, model, arithmetic, device
Errors = Callable[[Sequence[Any], Sequence[Any]], list[float]]


def growth_rows(
    samples: Sequence[Any], seen: Callable[[Sequence[Any]], float], beyond: Errors, band: Any
) -> dict[str, float]:
    """Return how much wider errors become with each doubling, by what is doubled.

    `seen` gives the band of curves that were left out of samples; `beyond` the errors of other
    samples by a fit to the first.  Of all cuts and distances the median counts, each as heavy as
    its points.
    """
    found = {}
    for name, cuts in CUTS.items():
        told: list[tuple[float, int]] = []
        for cut in cuts:
            inside = [each for each in samples if _size(each.point, name) <= cut]
            if not inside:
                continue
            usual = max(LEAST_BAND, seen(inside))
            known = {_server(each.point) for each in inside}
            far: dict[int, list[Any]] = {}
            for each in samples:
                doublings = math.ceil(math.log2(_size(each.point, name) / cut))
                if doublings > 0 and _server(each.point) in known:
                    far.setdefault(doublings, []).append(each)
            for doublings, group in far.items():
                if len(group) > FEW:
                    wider = band(beyond(inside, group)) / usual
                    told.append((wider ** (1 / doublings) - 1, len(group)))
        found[name] = round(max(LEAST_GROWTH, _weighed_median(told)), 2)
    return found


def _size(point: SpeedPoint, name: str) -> float:
    return point.batch if name == "requests" else point.input_tokens + point.output_tokens


def _server(point: SpeedPoint) -> tuple[Any, ...]:
    return (point.setup.engine, point.setup.accelerator.name, point.form)


def _weighed_median(told: Iterable[tuple[float, int]]) -> float:
    every = sorted(told)
    half = sum(weight for _, weight in every) / 2
    for value, weight in every:
        half -= weight
        if half <= 0:
            return value
    return 0.0


def reversed_rows(
    points: Sequence[SpeedPoint],
    predicted_s: Callable[[SpeedPoint], float],
    band: Callable[[Iterable[float]], float],
    slowed: Mapping[Server, Sequence[float]],
) -> list[dict[str, Any]]:
    """Return where a device was measured slower than one that it outdoes, by model and arithmetic.

    Where a pair is decided so, the errors of all points of the model on that device go with the
    row, and what its steps and prompts were `slowed` by; else all is within the scatter.
    """
    found = []
    for (server, than), pairs in sorted(measured_against(points).items()):
        engine, form, precision, name = server
        ratios = [pair.ratio for pair in pairs]
        errors = [
            point.tpot_s / predicted_s(point) - 1 for point in points if server_of(point) == server
        ]
        if not any(pair.is_decided and pair.ratio > 1 for pair in pairs):
            errors = [0.0]
        row = {
            "engine": engine,
            "form": form,
            "precision": precision,
            "device": name,
            "than": than,
            "points": len(ratios),
            "slower": sum(ratio > 1 for ratio in ratios),
            "longest": round(max(ratios), 3),
            "tpot": round(band(errors), 3),
            "throughput": round(band(-each / (1 + each) for each in errors), 3),
        }
        if server in slowed:
            row |= dict(zip(("step", "prompt"), (round(x, 4) for x in slowed[server]), strict=True))
        found.append(row)
    return found


@dataclass(frozen=True, slots=True)
class Pair:
    """The same point measured on two devices."""

    mine: Sequence[SpeedPoint]
    others: Sequence[SpeedPoint]

    @property
    def turned(self) -> Pair:
        """Return the pair with the devices exchanged."""
        return Pair(self.others, self.mine)

    @property
    def ratio(self) -> float:
        """Return how many times as long the first device took."""
        return _middle(self.mine) / _middle(self.others)

    @property
    def is_decided(self) -> bool:
        """Return whether measurements agree which is faster.

        They do not where times differ by less than those of one point that was measured twice, or
        where some times of either device are above some of the other.
        """
        mine, others = ([point.tpot_s for point in side] for side in (self.mine, self.others))
        apart = min(mine) > max(others) or min(others) > max(mine)
        return apart and max(self.ratio, 1 / self.ratio) > 1 + SCATTER


def pairs_of(points: Iterable[SpeedPoint]) -> list[Pair]:
    """Return every point that two devices were measured at, by the engine's same version if any."""
    found = []
    for sides in places_of(points).values():
        devices: dict[str, list[SpeedPoint]] = {}
        for point in sides:
            devices.setdefault(point.setup.accelerator.name, []).append(point)
        for mine, others in combinations(devices.values(), 2):
            same = {_version(point) for point in mine} & {_version(point) for point in others}
            found.append(
                Pair(
                    [point for point in mine if not same or _version(point) in same],
                    [point for point in others if not same or _version(point) in same],
                )
            )
    return found


def measured_against(points: Iterable[SpeedPoint]) -> dict[tuple[Server, str], list[Pair]]:
    """Return the pairs of a device and one that it outdoes, where one contradicts that."""
    found: dict[tuple[Server, str], list[Pair]] = {}
    for pair in pairs_of(points):
        for each in (pair, pair.turned):
            if _outdoes(each.mine[0], each.others[0]):
                than = each.others[0].setup.accelerator.name
                found.setdefault((server_of(each.mine[0]), than), []).append(each)
    return {key: pairs for key, pairs in found.items() if any(pair.ratio > 1 for pair in pairs)}


def slowed_servers(points: Iterable[SpeedPoint]) -> set[Server]:
    """Return where most decided pairs say that a device is slower than one that it outdoes."""
    found = set()
    for (server, _), pairs in measured_against(points).items():
        ratios = [pair.ratio for pair in pairs if pair.is_decided]
        if 2 * sum(ratio > 1 for ratio in ratios) > len(ratios):
            found.add(server)
    return found


def server_of(point: SpeedPoint) -> Server:
    """Return what a row of reversed order is of."""
    setup = point.setup
    return (setup.engine, point.form, point.precision, setup.accelerator.name)


def places_of(points: Iterable[SpeedPoint]) -> dict[Any, list[SpeedPoint]]:
    """Group points by all that they were measured at but the device."""
    found: dict[Any, list[SpeedPoint]] = {}
    for point in points:
        curve = point.curve.replace(f" {point.setup.accelerator.name} ", " ", 1)
        found.setdefault((curve, point.batch, point.setup.expert_parallel), []).append(point)
    return found


def _version(point: SpeedPoint) -> str:
    return point.setup.engine_version


def _middle(points: Sequence[SpeedPoint]) -> float:
    return statistics.median(point.tpot_s for point in points)


def _outdoes(one: SpeedPoint, other: SpeedPoint) -> bool:
    sheets = [
        figures_of(each.setup.accelerator, each.setup.model.scheme, each.setup.tp_degree)
        for each in (one, other)
    ]
    return sheets[0].outdoes(sheets[1])

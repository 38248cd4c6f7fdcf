"""Write the table of published speeds and of what is predicted for them.

    python benchmarks/fit_published.py --data DIR

writes `published.toml` of `packager/estimate/performance/data` from `published_points.csv`, after
`fit_speed`.  How much of an error remains once one point of a model was measured is taken from
the curves of models that were left out of the fit, and from the published sets.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from fit_speed import COVERAGE, KINDS, left_out, make_samples, table_lines
from published import Published, read_published
from speed_data import SpeedPoint, read_points

from packager.estimate.performance import published
from packager.estimate.performance.predict import Workload, predict_point
from packager.estimate.performance.published import (
    CURVES_OF,
    OWN_WEIGHT,
    ClassKey,
    Group,
    PublishedPoint,
    PublishedQuery,
    PublishedSet,
    errors_of,
    log_factor,
    once_ms,
    share_held,
)
from packager.estimate.performance.setup_tables import curve_factor, once_s, query_for
from packager.estimate.performance.speed_table import Form, speed_table

PAIRS = 12_000  # of points of one model, drawn at random
NEAR = 2.0  # times as many requests
ALONE = 1.0  # the most requests at once that wait for nobody
LEAST_MODELS = 2  # of a class, below which none can be left out


def sets_of(points: Iterable[Published]) -> list[PublishedSet]:
    """Join points of one source, model, engine, device and layout, with what is predicted."""
    found: dict[str, list[Published]] = {}
    for point in points:
        found.setdefault(point.set_name, []).append(point)
    return [_set(group) for group in found.values()]


def _set(group: Sequence[Published]) -> PublishedSet:
    first, setup = group[0], group[0].setup
    model = setup.model
    return PublishedSet(
        source=first.source.partition(":")[0],
        date=first.date,
        engine=setup.engine,
        version=setup.engine_version,
        model=first.model,
        form=(model.hidden_size, model.layers, model.experts),
        kind="moe" if model.experts else "dense",
        scheme=model.scheme,
        latent=model.latent,
        known=model.known,
        device=setup.accelerator.name,
        vendor=setup.accelerator.kind,
        tp_degree=setup.tp_degree,
        expert_parallel=setup.expert_parallel,
        figure="tpot_ms" if first.tpot_s else "output_tokens_s",
        points=tuple(_point(point) for point in group),
    )


def _point(point: Published) -> PublishedPoint:
    workload = Workload(input_tokens=point.input_tokens, output_tokens=point.output_tokens)
    found = predict_point(
        point.setup, workload, point.concurrency, factor=curve_factor(point.setup)
    )
    is_time, is_first = point.tpot_s is not None, point.ttft_s and point.concurrency <= ALONE
    work_s = found.prefill_s - once_s(point.setup)
    return PublishedPoint(
        input_tokens=point.input_tokens,
        output_tokens=point.output_tokens,
        concurrency=point.concurrency,
        published=1e3 * point.tpot_s if point.tpot_s else point.output_tokens_s or 0.0,
        predicted=float(f"{1e3 * found.tpot_s if is_time else found.output_tokens_s:.5g}"),
        first_ms=1e3 * point.ttft_s if is_first and point.ttft_s else 0.0,
        work_ms=float(f"{1e3 * work_s:.4g}") if is_first else 0.0,
    )


def query_of(one: PublishedSet) -> PublishedQuery:
    """Return what a correction of a set would be for."""
    return query_for(one.engine, one.kind, one.vendor, one.form, latent=one.latent)


def unseen_logs(sets: Iterable[PublishedSet], one: PublishedSet) -> list[float]:
    """Return the logarithms of published / corrected times of a set, its model left out."""
    left = log_factor((other for other in sets if other.form != one.form), query_of(one))
    return [each - left for each in one.logs]


def class_rows(sets: Sequence[PublishedSet]) -> list[dict[str, Any]]:
    """Return the errors of each class on models that were left out, those with curves apart."""
    classes: dict[ClassKey, dict[Form, list[float]]] = {}
    for one in sets:
        asked = query_of(one)
        if one.known:
            models = classes.setdefault((*asked.group, asked.has_curves), {})
            models.setdefault(one.form, []).extend(unseen_logs(sets, one))
    found = []
    for (vendor, engine, kind, has_curves), models in sorted(classes.items()):
        errors = errors_of(models.values())
        found.append(
            {
                "vendor": vendor,
                "engine": engine,
                "kind": kind,
                "has_curves": has_curves,
                "models": len(models),
                "points": sum(map(len, models.values())),
                "tpot": round(errors.tpot, 3),
                "throughput": round(errors.throughput, 3),
            }
        )
    return found


def elsewhere_rows(sets: Sequence[PublishedSet]) -> list[dict[str, Any]]:
    """Return the errors on devices without curves of their kind, the model left out."""
    groups: dict[tuple[str, str], dict[Form, list[float]]] = {}
    for one in sets:
        has_cell = (one.engine, one.device, one.kind) in speed_table().cells
        if one.known and not has_cell and one.vendor == CURVES_OF:
            models = groups.setdefault((one.vendor, one.kind), {})
            models.setdefault(one.form, []).extend(unseen_logs(sets, one))
    return [
        {
            "vendor": vendor,
            "kind": kind,
            "models": len(models),
            "points": sum(map(len, models.values())),
            "tpot": round((errors := errors_of(models.values())).tpot, 3),
            "throughput": round(errors.throughput, 3),
        }
        for (vendor, kind), models in sorted(groups.items())
    ]


def first_rows(sets: Sequence[PublishedSet]) -> list[dict[str, Any]]:
    """Return what each class adds to first tokens, and errors on models that were left out."""
    groups: dict[Group, dict[Form, list[float]]] = {}
    for one in sets:
        for each in one.points:
            if each.first_ms and one.known:
                told = each.work_ms + once_ms(sets, one.group, left_out=one.form)
                errors = groups.setdefault(one.group, {}).setdefault(one.form, [])
                errors.append(each.first_ms / told - 1)
    return [
        {
            "vendor": vendor,
            "engine": engine,
            "kind": kind,
            "models": len(models),
            "points": sum(map(len, models.values())),
            "once_ms": round(once_ms(sets, (vendor, engine, kind)), 1),
            "share": round(share_held(models.values(), abs), 3),
        }
        for (vendor, engine, kind), models in sorted(groups.items())
        if len(models) >= LEAST_MODELS
    ]


def remaining(points: Sequence[SpeedPoint], sets: Sequence[PublishedSet]) -> dict[str, float]:
    """Return by nearness what 9 of 10 points are off, once another of the model was measured."""
    errors: dict[str, list[float]] = {}
    for kind in KINDS:
        samples = make_samples(point for point in points if point.kind == kind)
        families: dict[str, list[tuple[SpeedPoint, float]]] = {}
        for each in left_out(samples, lambda point: point.family, None):
            point = each.sample.point
            families.setdefault(point.family, []).append((point, math.log(1 + each.tpot)))
        drawn = random.Random(0)
        for group in families.values():
            for _ in range(PAIRS):
                (one, given), (other, wanted) = drawn.choice(group), drawn.choice(group)
                near = nearness(one, other)
                if one is not other and near:
                    error = math.exp(wanted - OWN_WEIGHT * given) - 1
                    errors.setdefault(near, []).append(abs(error))
    found = {name: float(np.quantile(errors[name], COVERAGE)) for name in errors}
    pairs: dict[Form, list[float]] = {}
    for one in sets:
        pairs.setdefault(one.form, []).extend(
            math.exp(wanted - OWN_WEIGHT * given) - 1
            for place, given in enumerate(one.logs)
            for other, wanted in enumerate(one.logs)
            if place != other
        )
    found["load"] = max(found["load"], share_held(pairs.values(), abs))
    names = ("near", "load", "layout", "device")
    return {
        name: round(max(found[each] for each in names[: place + 1]), 3)
        for place, name in enumerate(names)
    }


def nearness(one: SpeedPoint, other: SpeedPoint) -> str:
    """Return what two points of a model share; "" where even their engines differ."""
    first, second = one.setup, other.setup
    if first.engine != second.engine:
        return ""
    if first.accelerator.name != second.accelerator.name:
        return "device"
    layouts = [
        (each.model.scheme, each.tp_degree, each.expert_parallel) for each in (first, second)
    ]
    if layouts[0] != layouts[1]:
        return "layout"
    lengths = [(each.input_tokens, each.output_tokens) for each in (one, other)]
    is_near = 1 / NEAR <= one.batch / other.batch <= NEAR
    return "near" if is_near and lengths[0] == lengths[1] else "load"


def table_text(sets: Sequence[PublishedSet], left: Mapping[str, float]) -> str:
    """Write the table."""
    lines = [
        "# Published speeds; written by benchmarks/fit_published.py, not by hand.  A point: tokens",
        "# of the prompt and of the answer, requests at once, published, predicted from curves;",
        "# of one request alone, ms to its first token, and those predicted for the work of it.",
        "",
        "# What 9 of 10 points are off, once another point of the model was measured.",
        "[remaining]",
        *(f"{name} = {share}" for name, share in left.items()),
    ]
    for name, rows in (
        ("class", class_rows(sets)),
        ("elsewhere", elsewhere_rows(sets)),
        ("first", first_rows(sets)),
    ):
        for row in rows:
            lines += table_lines(name, row)
    for one in sets:
        row = {name: getattr(one, name) for name in PublishedSet.__slots__ if name != "points"}
        points = [_numbers(each) for each in one.points]
        lines += table_lines("set", row | {"points": points})
    return "\n".join([*lines, ""])


def _numbers(point: PublishedPoint) -> list[float]:
    """Return a point's figures, without those of a first token that was not published."""
    numbers = [getattr(point, name) for name in PublishedPoint.__slots__]
    return numbers if point.first_ms else numbers[:-2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a copy of the measurements")
    data = parser.parse_args().data
    sets = sets_of(read_published(data))
    left = remaining(read_points(data), sets)
    published.TABLE.write_text(table_text(sets, left), encoding="utf-8")
    print(f"wrote {published.TABLE} ({len(sets)} sets)")


if __name__ == "__main__":
    main()

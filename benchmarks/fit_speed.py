"""Fit the coefficients of the speed model and write its tables.

    python benchmarks/fit_speed.py --data DIR

writes `speed.toml` and `exchange.csv` of `packager/estimate/performance/data`.  `speed_data` tells
what DIR holds; `predict.py` measures what the fit is worth.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, compress, product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from fit_bounds import (
    Server,
    growth_rows,
    pairs_of,
    reversed_rows,
    server_of,
    slowed_servers,
)
from speed_data import ROOT, SpeedPoint, read_points

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance
from packager.core.versions import LOWEST, version_key
from packager.estimate.performance import exchange, speed_table
from packager.estimate.performance.devices import figures_named
from packager.estimate.performance.speed_table import Form, Kind
from packager.estimate.performance.speed_terms import (
    PROMPT_TERMS,
    STEP_TERMS,
    figure_of,
    prompt_terms,
    step_terms,
)

KINDS: tuple[Kind, ...] = ("dense", "moe")
FOLDS = 5
# Points that coefficients are held with to those of the level above: of an engine's to those of
# its kind, of a device's to those of its engine; of a kind's, as a share of its points, to
# `EXPECTED`.  A coefficient that points do not determine stays with its neighbours.
ENGINE_PULL, DEVICE_PULL, KIND_PULL = 400.0, 20.0, 0.2
ROUNDS = 8
MODEL_ROUNDS = 4  # of coefficients and factors of models, in turns
# What a model misses all coefficients by is its own factor, held to 1 with so many points; the
# coefficients still have to explain the rest of it.
MODEL_PULL, MODEL_SHARE = 4.0, 0.8
# What is tried for a model that was measured slower on the faster device.
SLOWED_STEPS = tuple(1 + n / 50 for n in range(100))
SLOWED_PROMPTS = tuple(1 + n / 10 for n in range(100))
# Terms that are measured times by themselves; what else sharing costs is `joined_layer`.
AS_MEASURED, STIFF = frozenset({"exchange", "prompt_exchange"}), 1000.0
LEAST_ERROR = 0.02  # below it, a residual weighs no more
COVERAGE = 0.90
LEAST_CURVES = 8  # a cell with fewer is no cell of its own

Row = tuple[float, ...]
Key = tuple[str, str]  # engine and device; ("", "") of a kind, (engine, "") of all its devices
Place = tuple[str, Form]  # engine, form of the model


@dataclass(frozen=True, slots=True)
class TimeFit:
    """Coefficients of one time by engine and device, and factors of the models."""

    coefficients: Mapping[Key, Sequence[float]]
    factors: Mapping[Place, float]
    slowed: Mapping[Server, tuple[float, float]] = field(default_factory=dict)  # step, prompts

    def time_s(self, point: SpeedPoint, terms: Row) -> float:
        """Predict a time by the coefficients nearest to the point and the factors of its model."""
        step_s, prompt_s = self.parts_s(point, terms)
        step, prompt = self.slowed.get(server_of(point), (1.0, 1.0))
        return step * step_s + prompt * prompt_s

    def parts_s(self, point: SpeedPoint, terms: Row) -> tuple[float, float]:
        """Return the times of a step and of prompts in it, on a device in the usual order."""
        engine, device = point.setup.engine, point.setup.accelerator.name
        keys = ((engine, device), (engine, ""), ("", ""))
        nearest = next(self.coefficients[key] for key in keys if key in self.coefficients)
        own, steps = self.factors.get(place_of(point), 1.0), len(STEP_TERMS)
        step, prompt = (
            np.dot(nearest[:steps], terms[:steps]),
            np.dot(nearest[steps:], terms[steps:]),
        )
        return own * float(step), own * float(prompt)


LEAST_SHARE = 0.5  # of what is expected of a term, that its coefficient is at least

# What physics says of the terms, where measurements do not: bandwidth is reached, peaks are not
# quite; kernels take microseconds.  Where two terms cannot be told apart, neither becomes 0.
STEP_EXPECTED = (1, 1, 1, 0.7, 5, 30e-6, 5e-6, 20e-6, 4e-6, 5e-6, 1, 20e-6, 1.2, 3, 50e-6, 1)

SOURCE = (
    "silicon_sample.csv of aiconfigurator (github.com/ai-dynamo/aiconfigurator, Apache-2.0, commit "
    "095f58a5): measured times per output token and to first token; fitted by "
    "benchmarks/fit_speed.py"
)
DATE = "2026-11-22"

# device, instance with it, folder, version of vLLM, versions of NCCL for degrees that are missing
MEASURED = (
    ("H100", "ml.p5.48xlarge", "h100_sxm", "0.19.0", ""),
    ("H200", "ml.p5en.48xlarge", "h200_sxm", "0.19.0", ""),
    ("B200", "ml.p6-b200.48xlarge", "b200_sxm", "0.19.0", ""),
    ("B300", "ml.p6-b300.48xlarge", "b300_sxm", "0.19.0", ""),
    ("GB200", "ml.p6e-gb200.36xlarge", "gb200", "0.19.0", ""),
    ("A100-80", "ml.p4de.24xlarge", "a100_sxm", "0.14.0", ""),
    ("L40S", "ml.g6e.12xlarge", "l40s", "0.14.0", ""),
    ("RTX PRO Server 6000", "ml.g7e.24xlarge", "rtx_pro_6000_server", "0.19.0", "2.29.2"),
)
SIZES = tuple(128 * 4**power for power in range(11))  # elements of a message


@dataclass(frozen=True, slots=True)
class Sample:
    """A point with its terms."""

    point: SpeedPoint
    tpot: Row  # of the step and of prompts, for each answer token


@dataclass(frozen=True, slots=True)
class Missed:
    """Relative errors of one point that a fit did not see."""

    sample: Sample
    tpot: float

    @property
    def throughput(self) -> float:
        """Return the error of tokens a second, which are as many as times are short."""
        return -self.tpot / (1 + self.tpot)


def make_samples(points: Iterable[SpeedPoint]) -> list[Sample]:
    """Compute the terms of every point."""
    found = []
    for point in points:
        setup, batch = point.setup, point.batch
        cached = point.input_tokens + point.output_tokens / 2
        prompt = prompt_terms(setup, point.input_tokens)
        share = max(0.0, batch - 1) / point.output_tokens
        tpot = (*step_terms(setup, batch, cached), *(share * term for term in prompt))
        found.append(Sample(point, tpot))
    return found


def fit_kind(samples: Sequence[Sample]) -> TimeFit:
    """Fit the times per token of samples of one kind."""
    rows = np.array([(*sample.tpot, sample.point.tpot_s) for sample in samples])
    points = [sample.point for sample in samples]
    return _fit_time(points, rows, STEP_EXPECTED, STEP_TERMS + PROMPT_TERMS)


def place_of(point: SpeedPoint) -> Place:
    """Return what the factor of a model belongs to: the same on every device, in every format."""
    return (point.setup.engine, point.form)


def missed(fitted: TimeFit, sample: Sample) -> Missed:
    """Return how far a fit is from a point, as a reader meets it: a share of the prediction."""
    return Missed(sample, sample.point.tpot_s / fitted.time_s(sample.point, sample.tpot) - 1)


def errors_beyond(inside: Sequence[Sample], others: Sequence[Sample]) -> list[float]:
    """Predict other samples by a fit to the first."""
    fitted = fit_kind(inside)
    return [missed(fitted, each).tpot for each in others]


def left_out(
    samples: Sequence[Sample], group_of: Callable[[SpeedPoint], str], folds: int | None = FOLDS
) -> list[Missed]:
    """Predict every point by a fit without its group; with `folds`, groups leave together."""
    groups = sorted({group_of(sample.point) for sample in samples})
    random.Random(0).shuffle(groups)
    parts = [groups[n::folds] for n in range(folds)] if folds else [[group] for group in groups]
    found = []
    for part in parts:
        names = set(part)
        rest = [sample for sample in samples if group_of(sample.point) not in names]
        if rest:
            fitted = fit_kind(rest)
            found += [missed(fitted, each) for each in samples if group_of(each.point) in names]
    return found


def drift_of(points: Iterable[SpeedPoint]) -> tuple[int, float]:
    """Return how many points were measured with two versions, and by how much those differ.

    Models with a latent are left out: some of their points were measured with the head that
    they bring along and some without, and the file does not say which.
    """
    groups: dict[tuple[str, float, bool], list[SpeedPoint]] = {}
    for point in points:
        if point.setup.engine_version and not point.setup.model.latent:
            key = (point.curve, point.batch, point.setup.expert_parallel)
            groups.setdefault(key, []).append(point)
    found = [
        max(one.tpot_s, other.tpot_s) / min(one.tpot_s, other.tpot_s) - 1
        for group in groups.values()
        for one, other in combinations(group, 2)
        if one.setup.engine_version != other.setup.engine_version
    ]
    return len(found), band(found) if found else 0.0


def band(errors: Iterable[float]) -> float:
    """Return what `COVERAGE` of new errors stay below, by those that were seen."""
    sizes = sorted(map(abs, errors))
    place = min(len(sizes) - 1, int(np.ceil(COVERAGE * (len(sizes) + 1))) - 1)
    return sizes[place]


def _fit_time(
    points: Sequence[SpeedPoint], rows: Any, expected: Row, names: Sequence[str]
) -> TimeFit:
    """Fit coefficients and factors of models in turns; the last column of `rows` is the time.

    Servers that were measured against the order of their devices have factors of their own, and
    no part in the others.
    """
    every, slow = list(zip(points, rows, strict=True)), slowed_servers(points)
    usual = [server_of(point) not in slow for point in points]
    points, rows = [point for point, _ in compress(every, usual)], rows[usual]
    places = [place_of(point) for point in points]
    terms, times = rows[:, :-1], rows[:, -1]
    fit = TimeFit({}, {})
    for _ in range(MODEL_ROUNDS):
        own = np.array([fit.factors.get(place, 1.0) ** MODEL_SHARE for place in places])
        shares = terms * (own / times)[:, None]
        fit = TimeFit(_fit_levels(points, shares, expected, names), {})
        errors: dict[Place, list[float]] = {}
        for point, place, row, time in zip(points, places, terms, times, strict=True):
            if point.cell[:2] in fit.coefficients:  # few curves prove nothing of other devices
                errors.setdefault(place, []).append(np.log(time / fit.time_s(point, row)))
        factors = {
            place: float(np.exp(np.median(found) * len(found) / (len(found) + MODEL_PULL)))
            for place, found in errors.items()
        }
        fit = TimeFit(fit.coefficients, factors)
    return replace(
        fit,
        slowed={server: _slowed(fit, server, every) for server in sorted(slow)},
    )


def _slowed(
    fit: TimeFit, server: Server, every: Sequence[tuple[SpeedPoint, Any]]
) -> tuple[float, float]:
    """Find how many times as long steps and prompts take of one server, not less than usual.

    Of all factors those with the fewest decided pairs in another order than measured, and of them
    those with the least errors.
    """
    rows = {id(point): row for point, row in every}
    own = [(point, row) for point, row in every if server_of(point) == server]
    parts = np.array([fit.parts_s(point, row[:-1]) for point, row in own])
    shares = parts / np.array([row[-1] for _, row in own])[:, None]
    limits = []
    for pair in pairs_of(point for point, _ in every):
        for each in (pair, pair.turned):
            if each.is_decided and server_of(each.mine[0]) == server:
                mine, other = (side[0] for side in (each.mine, each.others))
                other_s = fit.time_s(other, rows[id(other)][:-1])
                limits.append((fit.parts_s(mine, rows[id(mine)][:-1]), other_s, each.ratio > 1))

    def cost(factors: tuple[float, float]) -> tuple[int, float]:
        inverted = sum((np.dot(factors, mine) > other) != slower for mine, other, slower in limits)
        return int(inverted), float(np.abs(shares @ factors - 1).mean())

    return min(product(SLOWED_STEPS, SLOWED_PROMPTS), key=cost)


def _fit_levels(
    points: Sequence[SpeedPoint], rows: Any, expected: Row, names: Sequence[str]
) -> dict[Key, Sequence[float]]:
    """Fit coefficients of the kind, of each engine, and of each device under their order."""
    least = LEAST_SHARE * np.asarray(expected)
    every = np.eye(len(names))
    stiff = np.array([STIFF if name in AS_MEASURED else 1.0 for name in names])
    kind = _solve(rows, np.asarray(expected), KIND_PULL * len(rows) * stiff, least, every)
    found: dict[Key, Sequence[float]] = {("", ""): kind}
    for engine in sorted({point.setup.engine for point in points}):
        mine = np.array([point.setup.engine == engine for point in points])
        found[engine, ""] = _solve(rows[mine], kind, ENGINE_PULL * stiff, least, every)
        own = [point for point in points if point.setup.engine == engine]
        curves: dict[str, set[str]] = {}
        for point in own:
            curves.setdefault(point.setup.accelerator.name, set()).add(point.curve)
        devices = sorted(name for name in curves if len(curves[name]) >= LEAST_CURVES)
        if not devices:
            continue
        placed = np.zeros((len(own), len(devices), len(names)))
        for n, (point, row) in enumerate(zip(own, rows[mine], strict=True)):
            if point.setup.accelerator.name in devices:
                placed[n, devices.index(point.setup.accelerator.name)] = row
        wide = placed.reshape(len(own), -1)
        solved = _solve(
            wide[wide.any(axis=1)],
            np.tile(found[engine, ""], len(devices)),
            DEVICE_PULL * np.tile(stiff, len(devices)),
            np.tile(least, len(devices)),
            ordered_steps(devices, names),
        )
        for device, part in zip(devices, np.split(solved, len(devices)), strict=True):
            found[engine, device] = part
    return found


def ordered_steps(devices: Sequence[str], names: Sequence[str]) -> Any:
    """Return what coefficients above their least are sums of, so that no term is out of order.

    A time that does not fall from a device to one that it outdoes is a sum of steps: each is
    1 on devices that lie below together with all that those outdo.  Columns are steps, rows
    coefficients, which are the times in units of the data sheet.
    """
    sheets = [figures_named(device, "", 8) for device in devices]
    below = [
        chosen
        for size in range(1, len(devices) + 1)
        for chosen in combinations(range(len(devices)), size)
        if all(
            other in chosen
            for one in chosen
            for other in range(len(devices))
            if sheets[one].outdoes(sheets[other])
        )
    ]
    steps = np.zeros((len(devices), len(names), len(below), len(names)))
    for column, chosen in enumerate(below):
        for device in chosen:
            for term, name in enumerate(names):
                scale = figure_of(name, sheets[device]) / figure_of(name, sheets[0])
                steps[device, term, column, term] = scale
    return steps.reshape(len(devices) * len(names), -1)


def _solve(rows: Any, prior: Any, pull: Any, least: Any, steps: Any) -> Any:
    """Fit sums of steps above the least to relative errors, towards the least absolute ones.

    `pull` has the points that each coefficient is held to its prior with.
    """
    weights = np.ones(len(rows))
    parts = np.zeros(steps.shape[1])
    usual = rows.sum(axis=0) / np.maximum((rows > 0).sum(axis=0), 1)
    usual = np.maximum(usual, 1e-30)
    for _ in range(ROUNDS):
        held = np.diag(np.sqrt(pull * np.mean(weights**2)) * usual)
        matrix = np.vstack([rows * weights[:, None], held])
        right = np.concatenate([weights, held @ np.asarray(prior)]) - matrix @ least
        matrix = matrix @ steps
        lengths = np.linalg.norm(matrix, axis=0)
        lengths[lengths == 0] = 1.0
        parts = nnls(matrix / lengths, right, parts * lengths) / lengths
        found = steps @ parts + least
        errors = np.abs(rows @ found - 1)
        weights = 1 / np.sqrt(np.maximum(errors, LEAST_ERROR))
    return found


def nnls(matrix: Any, right: Any, start: Any = None) -> Any:
    """Solve least squares without negative values, by Lawson and Hanson's active sets.

    `start` is a solution of a problem that resembles this one.
    """
    gram, target = matrix.T @ matrix, matrix.T @ right
    size = len(target)
    found = np.zeros(size) if start is None else start
    free = found > 0
    for _ in range(10 * size):
        while free.any():
            trial = np.zeros(size)
            trial[free] = np.linalg.solve(gram[np.ix_(free, free)], target[free])
            below = free & (trial <= 0)
            if not below.any():
                found = trial
                break
            steps = found[below] / (found[below] - trial[below])
            found = found + steps.min() * (trial - found)
            free &= found > 1e-15
            found[~free] = 0.0
        slopes = target - gram @ found
        slopes[free] = -np.inf
        best = int(np.argmax(slopes))
        if free.all() or slopes[best] <= 1e-10 * abs(target).max():
            return found
        free[best] = True
    return found


def exchange_rows(data: Path) -> list[dict[str, Any]]:
    """Distil the time of all-reduces: the engine's own in a graph, NCCL's where it has none.

    A device that outdoes another takes no longer: runs differ by how they were made.
    """
    found: list[dict[str, Any]] = []
    for device, instance, folder, version, nccl in MEASURED:
        accelerator = accelerator_of(find_instance(instance))
        times = _times(data / ROOT / f"systems/data/{folder}/comm/vllm/{version}", "vllm_graph")
        source = f"vLLM {version}"
        for degree in (2, 4, 8):
            named = source
            measured = times.get(degree)
            if measured is None and nccl:
                other = _times(data / ROOT / f"systems/data/{folder}/comm/nccl/{nccl}", "")
                measured, named = other.get(degree), f"NCCL {nccl}"
            if measured is None:
                continue
            for size in SIZES:
                found.append(
                    {
                        "device": device,
                        "link": accelerator.link,
                        "link_gb_s": f"{accelerator.link_bytes_s / 1e9:g}",
                        "tp_degree": degree,
                        "elements": size,
                        "microseconds": f"{1e3 * _between(measured, size):.4g}",
                        "source": named,
                    }
                )
    for row in found:
        same = [
            one
            for one in found
            if (one["tp_degree"], one["elements"]) == (row["tp_degree"], row["elements"])
            and _outdoes(row, one)
        ]
        fastest = min(same, key=lambda one: float(one["microseconds"]))
        row["microseconds"], row["source"] = fastest["microseconds"], fastest["source"]
    return found


def _between(measured: Mapping[int, float], size: int) -> float:
    sizes = sorted(measured)
    logs = np.log(np.maximum.accumulate([measured[each] for each in sizes]))
    return float(np.exp(np.interp(np.log(size), np.log(sizes), logs)))


def _times(folder: Path, backend: str) -> dict[int, dict[int, float]]:
    """Read milliseconds by degree and elements; the median where a size was measured twice."""
    import pyarrow.parquet

    path = next(folder.glob("*_perf.parquet"))
    found: dict[int, dict[int, list[float]]] = {}
    for row in pyarrow.parquet.read_table(path).to_pylist():
        if row["op_name"] != "all_reduce" or row.get("backend", "") != backend:
            continue
        if row.get("nccl_dtype", "half") not in ("half", "bfloat16"):
            continue
        sizes = found.setdefault(int(row["num_gpus"]), {})
        sizes.setdefault(int(row["message_size"]), []).append(row["latency"])
    return {
        degree: {size: float(np.median(each)) for size, each in sizes.items()}
        for degree, sizes in found.items()
    }


def device_rows(data: Path) -> list[dict[str, Any]]:
    """Distil what products of matrices in bf16 reach: of the bandwidth, and of the peak.

    A device that outdoes another reaches no less than that: runs differ by how they were made.
    """
    import pyarrow.parquet

    found = []
    for device, instance, folder, version, _ in MEASURED:
        path = data / ROOT / f"systems/data/{folder}/gemm/vllm/{version}/gemm_perf.parquet"
        if not path.exists():
            continue
        accelerator = accelerator_of(find_instance(instance))
        few, many = [], []
        for row in pyarrow.parquet.read_table(path).to_pylist():
            m, n, k = row["m"], row["n"], row["k"]
            if row["gemm_dtype"] != "bfloat16" or min(n, k) < 2048:
                continue
            seconds = row["latency"] * 1e-3
            if m <= 4 and n * k >= 16e6:
                few.append(2 * n * k / seconds / accelerator.bandwidth_bytes_s)
            if m >= 2048:
                many.append(2 * m * n * k / seconds / (1e12 * accelerator.tflops["bf16"]))
        found.append(
            {
                "device": device,
                "memory_share": float(np.median(few)),
                "compute_share": float(np.median(many)),
                "source": f"vLLM {version}, bf16: medians at most 4 and at least 2,048 tokens",
            }
        )
    for row in found:
        for share, figure in (("memory_share", "bandwidth"), ("compute_share", "peak_of_16_bits")):
            reached = max(
                one[share] * getattr(figures_named(one["device"], "", 8), figure)
                for one in found
                if _outdoes(row, one)
            )
            row[share] = round(reached / getattr(figures_named(row["device"], "", 8), figure), 4)
    return found


def _outdoes(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    sheets = [figures_named(row["device"], "", 8) for row in (one, other)]
    return sheets[0].outdoes(sheets[1])


def table_text(samples: Sequence[Sample], devices: Sequence[Mapping[str, Any]]) -> str:
    """Write the table of coefficients."""
    lines = [
        "# Coefficients of the speed model; written by benchmarks/fit_speed.py, not by hand.",
        "# A cell is of an engine on a device, of an engine on all devices, or of all engines.",
        "# `tpot`, `throughput`: relative errors that 90 of 100 unseen points stay below;",
        "# of a cell on curves that were left out, of the others on models that were.",
        f"source = {_toml(SOURCE)}",
        f"date = {_toml(DATE)}",
        "",
        "[terms]",
        f"step = {_toml(STEP_TERMS)}",
        f"prompt = {_toml(PROMPT_TERMS)}",
    ]
    pairs, share = drift_of(sample.point for sample in samples)
    lines += [
        "",
        "# Between versions of one engine at the same point: 9 of 10 times differ by less.",
        "[drift]",
        f"pairs = {pairs}",
        f"share = {share:.3f}",
    ]
    for row in devices:
        lines += table_lines("device", row)
    for kind in KINDS:
        inside = [sample for sample in samples if sample.point.kind == kind]
        fitted = fit_kind(inside)
        errors = {
            False: left_out(inside, lambda point: point.family, None),
            True: left_out(inside, lambda point: point.curve),
        }
        for key in fitted.coefficients:
            own = [each for each in errors[bool(key[1])] if _is_of(each.sample.point, key)]
            lines += table_lines("cell", _cell_row(key, fitted, own))
        for (engine, form), factor in sorted(fitted.factors.items()):
            row = {"engine": engine, "form": form, "tpot": round(factor, 4)}
            lines += table_lines("model", row)
        lines += _edge_lines(kind, inside, fitted)
    return "\n".join([*lines, ""])


def _edge_lines(kind: Kind, samples: Sequence[Sample], fitted: TimeFit) -> list[str]:
    """Return how errors grow beyond the data of a kind, and where data contradict the order."""

    def seen(inside: Sequence[Sample]) -> float:
        return band(each.tpot for each in left_out(inside, lambda point: point.curve))

    terms = {id(each.point): each.tpot for each in samples}

    def predicted_s(point: SpeedPoint) -> float:
        return fitted.time_s(point, terms[id(point)])

    lines = table_lines("beyond", {"kind": kind, **growth_rows(samples, seen, errors_beyond, band)})
    points = [each.point for each in samples]
    for row in reversed_rows(points, predicted_s, band, fitted.slowed):
        lines += table_lines("reversed", row)
    return lines


def _is_of(point: SpeedPoint, key: Key) -> bool:
    return key[0] in ("", point.setup.engine) and key[1] in ("", point.setup.accelerator.name)


def _cell_row(key: Key, fitted: TimeFit, errors: Sequence[Missed]) -> dict[str, Any]:
    points = [each.sample.point for each in errors]
    coefficients, steps = fitted.coefficients[key], len(STEP_TERMS)
    return {
        "engine": key[0],
        "device": key[1],
        "kind": points[0].kind,
        "points": len(points),
        "curves": len({point.curve for point in points}),
        "median": round(float(np.median([abs(each.tpot) for each in errors])), 3),
        "tpot": round(band(each.tpot for each in errors), 3),
        "throughput": round(band(each.throughput for each in errors), 3),
        "most_sequences": int(max(point.batch for point in points)),
        "most_tokens": max(point.input_tokens + point.output_tokens for point in points),
        "versions": _versions(points) if key[1] else [],
        "models": sorted({point.model for point in points}),
        "forms": sorted({(*point.form, point.precision) for point in points}),
        "step": coefficients[:steps],
        "prompt": coefficients[steps:],
    }


def table_lines(name: str, row: Mapping[str, Any]) -> list[str]:
    """Return the lines of one entry of a list of tables."""
    return ["", f"[[{name}]]", *(f"{key} = {_toml(value)}" for key, value in row.items())]


def _versions(points: Iterable[SpeedPoint]) -> list[str]:
    """Return the oldest and the newest version of the engine, of those that are releases."""
    names = {point.setup.engine_version for point in points}
    known = sorted(filter(version_key, names), key=lambda name: version_key(name) or LOWEST)
    return [known[0], known[-1]] if known else []


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"'
    if isinstance(value, float):
        return f"{value:.10g}" if value else "0.0"
    if isinstance(value, tuple | list | np.ndarray):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a copy of the measurements")
    data = parser.parse_args().data
    rows = exchange_rows(data)
    lines = [
        "# Time of one all-reduce of 2-byte elements; written by benchmarks/fit_speed.py.",
        f"# aiconfigurator (github.com/ai-dynamo/aiconfigurator, Apache-2.0, commit 095f58a5),"
        f" {DATE}.",
        ",".join(rows[0]),
        *(",".join(str(value) for value in row.values()) for row in rows),
        "",
    ]
    exchange.TABLE.write_text("\n".join(lines), encoding="utf-8")
    exchange._table.cache_clear()
    text = table_text(make_samples(read_points(data)), device_rows(data))
    speed_table.TABLE.write_text(text, encoding="utf-8")
    print(f"wrote {exchange.TABLE} ({len(rows)} rows) and {speed_table.TABLE}")


if __name__ == "__main__":
    main()

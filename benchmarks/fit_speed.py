"""Fit the coefficients of the speed model and write its tables.

    python benchmarks/fit_speed.py --data DIR

writes `speed.toml` and `exchange.csv` of `packager/performance/data`.  `speed_data` tells
what DIR holds; `predict.py` measures what the fit is worth.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from speed_data import ROOT, SpeedPoint, read_points

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance
from packager.core.versions import LOWEST, version_key
from packager.performance import exchange, speed_table
from packager.performance.speed_table import Kind
from packager.performance.speed_terms import (
    FIRST_TERMS,
    PROMPT_TERMS,
    STEP_TERMS,
    first_terms,
    prompt_terms,
    step_terms,
)

KINDS: tuple[Kind, ...] = ("dense", "moe")
FOLDS = 5
PULL = 8.0  # points that a cell's coefficients are held to those of its kind with
KIND_PULL = 0.05  # share of the points that those of a kind are held to `EXPECTED` with
ROUNDS = 12
LEAST_ERROR = 0.02  # below it, a residual weighs no more
COVERAGE = 0.90
LEAST_CURVES = 8  # a cell with fewer is no cell of its own


@dataclass(frozen=True, slots=True)
class Fitted:
    """Coefficients of both times."""

    tpot: Sequence[float]
    ttft: Sequence[float]


LEAST_SHARE = 0.5  # of what is expected of a term, that its coefficient is at least

# What physics says of the terms, where measurements do not: bandwidth is reached, peaks are not
# quite; kernels take microseconds.  Where two terms cannot be told apart, neither becomes 0.
EXPECTED = Fitted(
    tpot=(1, 1, 1, 0.7, 30e-6, 5e-6, 4e-6, 1, 20e-6, 1.2, 3, 50e-6, 1.2),
    ttft=(0.03, 1, 1.5, 3, 100e-6, 1.2, 0.12, 0.2, 3e-6, 0.12, 200e-6),
)

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

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """A point with its terms."""

    point: SpeedPoint
    tpot: Row  # of the step and of prompts, for each answer token
    ttft: Row


@dataclass(frozen=True, slots=True)
class Missed:
    """Relative errors of one point that a fit did not see."""

    sample: Sample
    tpot: float
    ttft: float
    throughput: float


def make_samples(points: Iterable[SpeedPoint]) -> list[Sample]:
    """Compute the terms of every point."""
    found = []
    for point in points:
        setup, batch = point.setup, point.batch
        cached = point.input_tokens + point.output_tokens / 2
        prompt = prompt_terms(setup, point.input_tokens)
        share = max(0.0, batch - 1) / point.output_tokens
        tpot = (*step_terms(setup, batch, cached), *(share * term for term in prompt))
        found.append(Sample(point, tpot, first_terms(setup, prompt, batch)))
    return found


def fit_kind(samples: Sequence[Sample]) -> dict[tuple[str, str, Kind] | Kind, Fitted]:
    """Fit every cell of one kind, and all of them together under the kind's own name."""
    if not samples:
        return {}
    kind = samples[0].point.kind
    whole = _fit(samples, None)
    found: dict[tuple[str, str, Kind] | Kind, Fitted] = {kind: whole}
    for cell in sorted({sample.point.cell for sample in samples}):
        inside = [sample for sample in samples if sample.point.cell == cell]
        if len({sample.point.curve for sample in inside}) >= LEAST_CURVES:
            found[cell] = _fit(inside, whole)
    return found


def missed(fitted: Mapping[tuple[str, str, Kind] | Kind, Fitted], sample: Sample) -> Missed:
    """Return how far a fit is from a point."""
    point = sample.point
    coefficients = fitted.get(point.cell, fitted[point.kind])
    tpot_s = float(np.dot(coefficients.tpot, sample.tpot))
    ttft_s = float(np.dot(coefficients.ttft, sample.ttft))
    tokens = point.output_tokens
    tokens_s = point.batch * tokens / (ttft_s + (tokens - 1) * tpot_s)
    # As a reader meets it: how far the measured value is from the predicted one.
    return Missed(
        sample,
        point.tpot_s / tpot_s - 1,
        point.ttft_s / ttft_s - 1 if point.ttft_s else 0.0,
        point.tokens_s / tokens_s - 1,
    )


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
        if not rest:
            continue
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


def _fit(samples: Sequence[Sample], whole: Fitted | None) -> Fitted:
    tpot = np.array([sample.tpot for sample in samples])
    ttft = np.array([sample.ttft for sample in samples])
    seen = np.array([sample.point.ttft_s > 0 for sample in samples])
    prior, pull = (whole, PULL) if whole else (EXPECTED, KIND_PULL * len(samples))
    tpot_s = np.array([sample.point.tpot_s for sample in samples])
    ttft_s = np.array([sample.point.ttft_s for sample in samples])
    return Fitted(
        _solve(tpot, tpot_s, prior.tpot, pull, EXPECTED.tpot),
        _solve(ttft[seen], ttft_s[seen], prior.ttft, pull, EXPECTED.ttft),
    )


def _solve(
    terms: Any, times: Any, prior: Sequence[float], pull: float, expected: Sequence[float]
) -> Sequence[float]:
    """Fit coefficients above their least to relative errors, towards the least absolute ones."""
    least = LEAST_SHARE * np.asarray(expected)
    rows = terms / times[:, None]
    weights = np.ones(len(times))
    found = np.zeros(rows.shape[1])
    usual = np.maximum(rows.mean(axis=0), 1e-30)
    for _ in range(ROUNDS):
        held = np.sqrt(pull * np.mean(weights**2)) * np.diag(usual)
        matrix = np.vstack([rows * weights[:, None], held])
        right = np.concatenate([weights, held @ np.asarray(prior)]) - matrix @ least
        lengths = np.linalg.norm(matrix, axis=0)
        lengths[lengths == 0] = 1.0
        found = nnls(matrix / lengths, right) / lengths + least
        errors = np.abs(rows @ found - 1)
        weights = 1 / np.sqrt(np.maximum(errors, LEAST_ERROR))
    return [float(value) for value in found]


def nnls(matrix: Any, right: Any) -> Any:
    """Solve least squares without negative values, by Lawson and Hanson's active sets."""
    gram, target = matrix.T @ matrix, matrix.T @ right
    size = len(target)
    found = np.zeros(size)
    free = np.zeros(size, dtype=bool)
    for _ in range(10 * size):
        slopes = target - gram @ found
        slopes[free] = -np.inf
        best = int(np.argmax(slopes))
        if free.all() or slopes[best] <= 1e-10 * abs(target).max():
            return found
        free[best] = True
        while True:
            trial = np.zeros(size)
            inner = np.ix_(free, free)
            trial[free] = np.linalg.lstsq(gram[inner], target[free], rcond=None)[0]
            below = free & (trial <= 0)
            if not below.any():
                break
            steps = found[below] / (found[below] - trial[below])
            found = found + steps.min() * (trial - found)
            free &= found > 1e-15
            found[~free] = 0.0
        found = trial
    return found


def exchange_rows(data: Path) -> list[dict[str, Any]]:
    """Distil the time of all-reduces: the engine's own in a graph, NCCL's where it has none."""
    found = []
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
    """Distil what products of matrices in bf16 reach: of the bandwidth, and of the peak."""
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
                "memory_share": round(float(np.median(few)), 3),
                "compute_share": round(float(np.median(many)), 3),
                "source": f"vLLM {version}, bf16: medians at most 4 and at least 2,048 tokens",
            }
        )
    return found


def table_text(samples: Sequence[Sample], devices: Sequence[Mapping[str, Any]]) -> str:
    """Write the table of coefficients."""
    lines = [
        "# Coefficients of the speed model; written by benchmarks/fit_speed.py, not by hand.",
        "# `tpot`, `ttft`, `throughput`: relative errors that 90 of 100 unseen points stay below;",
        "# of a cell on curves that were left out, of a kind on models that were.",
        f"source = {_toml(SOURCE)}",
        f"date = {_toml(DATE)}",
        "",
        "[terms]",
        f"step = {_toml(STEP_TERMS)}",
        f"prompt = {_toml(PROMPT_TERMS)}",
        f"first = {_toml(FIRST_TERMS)}",
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
        lines += ["", "[[device]]", *(f"{name} = {_toml(value)}" for name, value in row.items())]
    for kind in KINDS:
        inside = [sample for sample in samples if sample.point.kind == kind]
        fitted = fit_kind(inside)
        strangers = left_out(inside, lambda point: point.family, None)
        lines += ["", "[[kind]]", *_cell_lines(kind, inside, fitted[kind], strangers)]
        unseen = left_out(inside, lambda point: point.curve)
        for cell, coefficients in fitted.items():
            if isinstance(cell, tuple):
                own = [sample for sample in inside if sample.point.cell == cell]
                errors = [each for each in unseen if each.sample.point.cell == cell]
                lines += ["", "[[cell]]", *_cell_lines(kind, own, coefficients, errors, cell)]
    return "\n".join([*lines, ""])


def _cell_lines(
    kind: Kind,
    samples: Sequence[Sample],
    fitted: Fitted,
    errors: Sequence[Missed],
    cell: tuple[str, str, Kind] | None = None,
) -> list[str]:
    points = [sample.point for sample in samples]
    values: dict[str, Any] = {"engine": cell[0], "device": cell[1]} if cell else {}
    steps = len(STEP_TERMS)
    values |= {
        "kind": kind,
        "points": len(points),
        "curves": len({point.curve for point in points}),
        "median": round(float(np.median([abs(each.tpot) for each in errors])), 3),
        "tpot": round(band(each.tpot for each in errors), 3),
        "ttft": round(band(each.ttft for each in errors if each.sample.point.ttft_s), 3),
        "throughput": round(band(each.throughput for each in errors), 3),
        "most_sequences": int(max(point.batch for point in points)),
        "versions": _versions(points) if cell else [],
        "models": sorted({point.model for point in points}),
        "forms": sorted({(*point.form, point.precision) for point in points}),
        "step": fitted.tpot[:steps],
        "prompt": fitted.tpot[steps:],
        "first": fitted.ttft,
    }
    return [f"{name} = {_toml(value)}" for name, value in values.items() if value != []]


def _versions(points: Iterable[SpeedPoint]) -> list[str]:
    """Return the oldest and the newest version of the engine, of those that are releases."""
    names = {point.setup.engine_version for point in points}
    known = sorted(filter(version_key, names), key=lambda name: version_key(name) or LOWEST)
    return [known[0], known[-1]] if known else []


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"'
    if isinstance(value, float):
        return f"{value:.4g}" if value else "0.0"
    if isinstance(value, tuple | list):
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

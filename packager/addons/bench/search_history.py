"""A search as AIPerf writes it: `search_history.json`.

SageMaker's SDK reads `boundary_summary` of it.  Form and names are those of AIPerf 0.13.
"""

from __future__ import annotations

from typing import Any

from packager.addons.bench.search import STATISTICS, Breach, Reason, SearchResult, Trial

PATH = "phases.profiling.concurrency"
RECIPES = {"max-concurrency": "max-concurrency-under-sla", "knee": "concurrency-ramp"}
REASONS: dict[Reason, str] = {
    "boundary": "monotonic_precision_reached",
    "no-failure-in-range": "monotonic_no_failure_in_range",
    "no-pass-in-range": "monotonic_no_pass_in_range",
    "budget": "max_iterations",
    "knee": "knee_found",  # AIPerf has no search for it
    "no-knee-in-range": "no_knee_in_range",
}


def history_document(found: SearchResult) -> dict[str, Any]:
    """Return a search as a JSON document."""
    tried = [trial.point.concurrency for trial in found.trials]
    return {
        "config": {
            "planner": "monotonic_sla",
            "objectives": [
                {
                    "metric": "output_token_throughput",
                    "stat": "avg",
                    "direction": "MAXIMIZE",
                    "threshold": None,
                }
            ],
            "outcome_constraints": [],
            "search_space": [
                {"path": PATH, "lo": min(tried, default=1), "hi": max(tried, default=1)}
                | {"kind": "int"}
            ],
            "sla_filters": [
                {"metric_tag": tag, "stat": STATISTICS[tag], "op": "lt", "threshold": limit}
                for tag, limit in found.limits.items()
            ],
        },
        "iterations": [_iteration(trial) for trial in found.trials],
        "best_trials": _best_trials(found),
        "boundary_summary": _boundary(found),
        "recipe": RECIPES[found.boundary.what],
        "convergence_reason": REASONS[found.reason],
    }


def _iteration(trial: Trial) -> dict[str, Any]:
    return {
        "iteration_idx": trial.number,
        "variation_values": {PATH: trial.point.concurrency},
        "objective_values": _objectives(trial),
        "feasible": trial.is_feasible,
        "non_monotonic_warning": trial.is_contradicted,
    }


def _objectives(trial: Trial) -> list[float] | None:
    value = trial.point.output_token_throughput
    return None if value is None else [value]


def _best_trials(found: SearchResult) -> list[dict[str, Any]] | None:
    best = _last(found, found.boundary.feasible, feasible=True)
    if best is None:
        return None
    return [
        {
            "iteration_idx": best.number,
            "objective_values": _objectives(best),
            "variation_values": {PATH: best.point.concurrency},
            "feasible": True,
            "feasible_count": sum(trial.is_feasible for trial in found.trials),
            "pareto_rank": 0,
        }
    ]


def _boundary(found: SearchResult) -> dict[str, Any] | None:
    if not found.trials:
        return None
    passed = _last(found, found.boundary.feasible, feasible=True)
    failed = _last(found, found.boundary.infeasible, feasible=False)
    return {
        "swept_dim_path": PATH,
        "feasible_max": passed
        and {
            "value": passed.point.concurrency,
            "iteration_idx": passed.number,
            "objective_value": found.objective,
        },
        "infeasible_min": failed
        and {
            "value": failed.point.concurrency,
            "iteration_idx": failed.number,
            "first_breach": _breach(failed.breaches[0]),
        },
    }


def _breach(breach: Breach) -> dict[str, Any]:
    return {
        "metric_tag": breach.tag,
        "stat": breach.statistic,
        "op": "lt",
        "threshold": breach.limit,
        "observed": breach.observed,
    }


def _last(found: SearchResult, concurrency: int | None, *, feasible: bool) -> Trial | None:
    """Return the last measurement of a point that agrees with its verdict."""
    for trial in reversed(found.trials):
        if trial.point.concurrency == concurrency and trial.is_feasible == feasible:
            return trial
    return None

"""Metrics of one load as the table that AIPerf writes beside its summary.

`profile_export_aiperf.csv` has a section of metrics with statistics and one of single values, names
with their units (AIPerf 0.13).  Metrics that AIPerf does not have are named by their tags' words.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from types import MappingProxyType

from packager.core.bench import Metric

TABLE = "profile_export_aiperf.csv"
STATISTICS = (
    *("avg", "min", "max", "sum", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99"),
    "std",
)
_PERCENTILES = tuple(name for name in STATISTICS if name[1:].isdigit())
_PLAIN_UNITS = ("count", "requests")
# AIPerf's names, where they are not the words of the tag.
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "completed_request_count": "Completed Requests (Success + Error)",
        "e2e_output_token_throughput": "E2E Output Token Throughput",
        "error_isl": "Error Input Sequence Length",
        "good_request_fraction": "GoodRequestFraction",
        "max_response_timestamp": "Maximum Response Timestamp",
        "min_request_timestamp": "Minimum Request Timestamp",
        "osl_mismatch_count": "OSL Mismatch Count",
        "osl_mismatch_diff_pct": "OSL Mismatch Diff %",
        "spec_decode_overall_draft_acceptance_rate": "Overall Draft Acceptance Rate",
        "spec_decode_token_weighted_acceptance_length": "Token-Weighted Acceptance Length",
        "time_to_first_output_token": "Time to First Output Token",
        "time_to_first_token": "Time to First Token",
        "time_to_second_token": "Time to Second Token",
        "total_error_isl": "Total Error Input Sequence Length",
        "total_isl": "Total Input Sequence Length",
        "total_osl": "Total Output Sequence Length",
        "usage_completion_tokens_diff_pct": "Usage Completion Diff %",
        "usage_prompt_tokens_diff_pct": "Usage Prompt Diff %",
    }
)


def metrics_table(metrics: Mapping[str, Metric]) -> bytes:
    """Return the table of metrics by their tags; lines end as in RFC 4180."""
    text = io.StringIO()
    writer = csv.writer(text)
    spread = {tag: one for tag, one in sorted(metrics.items()) if _is_spread(one)}
    single = {tag: one for tag, one in sorted(metrics.items()) if not _is_spread(one)}
    if spread:
        writer.writerow(("Metric", *STATISTICS))
        for tag, metric in spread.items():
            values = (getattr(metric, name) for name in STATISTICS)
            writer.writerow((_title(tag, metric), *map(_number, values)))
        if single:
            writer.writerow(())
    if single:
        writer.writerow(("Metric", "Value"))
        for tag, metric in single.items():
            writer.writerow((_title(tag, metric), _number(metric.avg)))
    return text.getvalue().encode()


def _is_spread(metric: Metric) -> bool:
    return any(getattr(metric, name) is not None for name in _PERCENTILES)


def _title(tag: str, metric: Metric) -> str:
    name = _NAMES.get(tag, tag.replace("_", " ").title())
    has_unit = metric.unit and metric.unit.lower() not in _PLAIN_UNITS
    return f"{name} ({metric.unit})" if has_unit else name


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"

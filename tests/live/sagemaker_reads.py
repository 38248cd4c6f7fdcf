"""Let SageMaker's own SDK read results from a bucket, and compare them.

Run with the SDK on the path and places (`s3://…/`) as arguments.  Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import sagemaker_modules  # noqa: F401
from sagemaker.serve.ai_inference_recommender import result


def main(places: list[str]) -> None:
    """Print what was read from every place."""
    found = [result.BenchmarkResult.from_s3(place) for place in places]
    single = [one for one in found if not one.is_search]
    statistics = ("avg", "p90") if len(single) > 1 else ()
    compared = [str(result.compare_benchmarks(*single, stat=one)) for one in statistics]
    sys.stdout.write(json.dumps({"results": [_told(one) for one in found], "compared": compared}))


def _told(one: Any) -> dict[str, Any]:
    search = one.search
    return {
        "version": one.tool_version,
        "shown": str(one),
        "metrics": {
            name: [metric.unit, metric.avg, metric.p50, metric.p99, metric.stddev]
            for name, metric in one.metrics.all_metrics.items()
        },
        "search": None
        if search is None
        else [
            search.swept_dim,
            search.winner,
            search.winner_objective,
            search.infeasible_min,
            search.first_breach,
        ],
    }


main(sys.argv[1:])

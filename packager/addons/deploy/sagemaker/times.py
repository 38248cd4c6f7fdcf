"""Time-outs of an endpoint, from predicted times."""

from __future__ import annotations

import math

from packager.core.deployment import Deployment
from packager.estimate.performance.startup import s3_bytes_s

LEAST_S, MOST_S = 60, 3600  # of both, in the API's model
MARGIN = 1.5  # over a prediction: a time-out that fires throws away all that was loaded
UNKNOWN_S = 1800  # default start time of a server; AWS's own for large models


def health_s(deployment: Deployment) -> int:
    """Return ContainerStartupHealthCheckTimeoutInSeconds.

    AWS does not document whether it includes pulling the image: that time is added, up to the
    limit.
    """
    if deployment.load_s is None:
        return UNKNOWN_S
    pull_s = deployment.pull_s or 0.0
    return _allowed(MARGIN * deployment.load_s + pull_s)


def download_s(deployment: Deployment) -> int | None:
    """Return ModelDataDownloadTimeoutInSeconds; None without a download."""
    if deployment.weights.kind == "baked":
        return None
    if deployment.model_bytes is None:
        return MOST_S
    return _allowed(MARGIN * deployment.model_bytes / s3_bytes_s())


def _allowed(seconds: float) -> int:
    return min(max(60 * math.ceil(seconds / 60), LEAST_S), MOST_S)

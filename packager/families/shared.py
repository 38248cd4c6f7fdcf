"""What several families say alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packager.core.findings import Finding
from packager.core.plan import Plan

# A packaged model needs no network: a server that reaches for one is misconfigured.
OFFLINE_ENV: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}

# The share of device memory that `packager.planning.memory` reckons with.
GPU_MEMORY_UTILIZATION = 0.9


def check_input_limit(plan: Plan) -> Iterator[Finding]:
    """Say that vLLM bounds a request as a whole: nothing we render limits the prompt alone."""
    message = (
        f"vLLM limits prompt and answer together to {plan.shape.max_total_tokens} tokens; "
        f"max_input_tokens {plan.shape.max_input_tokens} is not enforced by the server"
    )
    yield Finding("note", "input-limit-not-enforced", message)

"""Techniques in plans: what they make of the memory, and what is refused."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from packager.catalog.instances import instances
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from tests.support import zoo
from tests.unit.pipeline.planning.test_techniques import LLAMA_8B, plan_of


@given(
    instance=st.sampled_from(
        ["g5.xlarge", "g4dn.12xlarge", "g5.12xlarge", "p5.48xlarge", "trn2.48xlarge", "c7i.4xlarge"]
    ),
    quantize=st.sampled_from([None, "none", "awq", "gptq", "fp8", "smoothquant", "x"]),
    draft=st.sampled_from([None, "auto", "none", "ngram", "ngram:3", "eagle:x", "medusa:x", "y"]),
    speculative_tokens=st.none() | st.integers(1, 40),
    kv_dtype=st.sampled_from([None, "auto", "fp8"]),
    tp_degree=st.none() | st.integers(1, 9),
    pp_degree=st.none() | st.integers(1, 9),
    max_batch=st.none() | st.integers(1, 10**9),
    max_total_tokens=st.none() | st.integers(1, 10**9),
    max_prefill_tokens=st.none() | st.integers(1, 10**9),
    goal=st.sampled_from([None, "cost", "latency", "throughput"]),
)
def test_every_request_is_honoured_or_refused_with_a_way_out(instance: str, **asked: Any) -> None:
    medusa = zoo.medusa(2, 4096, 128256)
    try:
        plan = plan_of(LLAMA_8B, instance, draft_files=medusa, suggest=instances(), **asked)
    except PlanRejected as error:
        assert all(finding.hint for finding in errors_in(error.findings))
        return

    assert plan.budget.fits
    assert plan.tp_degree * plan.pp_degree * plan.replicas <= plan.instance.devices
    for field in ("max_batch", "max_total_tokens"):
        assert asked[field] in (None, getattr(plan.shape, field))
    for field in ("tp_degree", "pp_degree", "max_prefill_tokens"):
        assert asked[field] in (None, getattr(plan, field))
    assert (plan.quantization is None) == (asked["quantize"] in (None, "none"))
    assert (plan.draft is None) == (asked["draft"] in (None, "none", "auto"))

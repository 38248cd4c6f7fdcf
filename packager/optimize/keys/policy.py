"""Cache policy of each kind of artifact that packager stores."""

from __future__ import annotations

from artifact_cache.kinds import KindPolicy, LargerRule
from packager.optimize.keys.larger import covers_shape, shape_cost

_LARGER_SHAPE = LargerRule(field="shape", covers=covers_shape, cost=shape_cost)

KIND_POLICY = KindPolicy(
    # Plain tensors.  Everything else holds code that will run: it is hashed on every read.
    stamped=frozenset({"quantized-checkpoint", "sharded-checkpoint", "draft-head"}),
    # Neuron pads to its shape, and a TensorRT-LLM engine has limits built in.  Not vLLM's
    # cache: vLLM looks into it by the exact configuration.  Checkpoints have no shape.
    larger={"neuron": _LARGER_SHAPE, "tensorrt-llm-engine": _LARGER_SHAPE},
)

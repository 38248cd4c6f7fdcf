"""Checkpoints in FP8 blocks that are quantized otherwise: converted to 16 bits on the way."""

from __future__ import annotations

from importlib.util import find_spec

from packager.core.model import ModelFiles
from packager.core.request import BuildRequest
from packager.estimate.sizing.schemes import parse_quantize
from packager.optimize.quantize.method import AUTO, NONE
from packager.optimize.quantize.stream.widened import block_of, widened
from packager.pipeline.services import BuildServices


def with_converted(model: ModelFiles, request: BuildRequest, services: BuildServices) -> ModelFiles:
    """Describe the model in bfloat16 where another method is asked for than it came by.

    Without NumPy it stays as it is, and the plan refuses to quantize it again.
    """
    asked = request.quantizing
    if asked in (None, NONE, AUTO) or block_of(model.config) is None:
        return model
    if parse_quantize(asked).method == "fp8" or find_spec("numpy") is None:
        return model
    return widened(model, services.read_header)

"""Modules of SageMaker's SDK for programs, as they were shipped, without the packages above them.

Those import all of the SDK, and torch, when they are imported.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

path: Any = None
for name in ("sagemaker", "sagemaker.serve", "sagemaker.serve.ai_inference_recommender"):
    spec = PathFinder.find_spec(name, path)
    assert spec is not None
    sys.modules[name] = module_from_spec(spec)  # without running it
    path = spec.submodule_search_locations

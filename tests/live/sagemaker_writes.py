"""Let SageMaker's own SDK write workload specifications.

Run with the SDK on the path.  Only the module that writes them is imported, as it was shipped.
Prints one JSON object: the text of each specification.
"""

from __future__ import annotations

import json
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

PACKAGES = "sagemaker", "sagemaker.serve", "sagemaker.serve.ai_inference_recommender"
SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hub-AbCdEf"


def main() -> None:
    """Print a specification of each kind that the SDK makes."""
    path: Any = None
    for name in PACKAGES:
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        sys.modules[name] = module_from_spec(spec)  # without running it
        path = spec.submodule_search_locations
    from sagemaker.serve.ai_inference_recommender.workload import Workload

    made = {
        "synthetic": Workload.synthetic(
            tokenizer="org/name",
            concurrency=8,
            prompt_input_tokens_mean=550,
            output_tokens_mean=150,
            hf_token=SECRET,
            random_seed=3,
            extra_inputs="ignore_eos:true",
        ),
        "dataset": Workload.from_dataset("s3://bucket/data/", custom_dataset_type="openai-chat"),
        "template": Workload.template(
            template_s3_uri="s3://bucket/body.jinja", response_field="generated_text"
        ),
    }
    sys.stdout.write(json.dumps({name: one.to_inline() for name, one in made.items()}))


main()

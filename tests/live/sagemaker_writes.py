"""Let SageMaker's own SDK write workload specifications.

Run with the SDK on the path.  Prints one JSON object: the text of each specification.
"""

from __future__ import annotations

import json
import sys

import sagemaker_modules  # noqa: F401
from sagemaker.serve.ai_inference_recommender.workload import Workload

SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hub-AbCdEf"


def main() -> None:
    """Print a specification of each kind that the SDK makes."""
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

"""Optimize, deploy, ask and delete with SageMaker's SDK 2, as its documentation shows it.

    sagemaker_sdk2.py BUCKET METHOD

The model is in the bucket, below models/tiny; its config.json, which the SDK asks the hub for,
is read there as well.  Prints one JSON object.
"""

from __future__ import annotations

import json
import sys

import short_pauses
from hub_of_bucket import ASKED, SAMPLES, answer_for_hub
from sagemaker import Session, get_execution_role
from sagemaker.serve import ModelBuilder, SchemaBuilder
from sagemaker.serve.mode.function_pointers import Mode


def main(bucket: str, method: str) -> None:
    short_pauses.shorten()
    answer_for_hub(bucket)
    builder = ModelBuilder(
        model="example/tiny",
        schema_builder=SchemaBuilder(*SAMPLES),
        role_arn=get_execution_role(),
        sagemaker_session=Session(),
        model_metadata={"CUSTOM_MODEL_PATH": f"s3://{bucket}/models/tiny/"},
        mode=Mode.SAGEMAKER_ENDPOINT,
    )
    optimized = builder.optimize(
        instance_type="ml.g5.12xlarge",
        output_path=f"s3://{bucket}/sdk2/",
        quantization_config={"OverrideEnvironment": {"OPTION_QUANTIZE": method}},
    )
    predictor = optimized.deploy(
        initial_instance_count=1, instance_type="ml.g5.12xlarge", endpoint_name="sdk2"
    )
    answer = predictor.predict(ASKED)
    predictor.delete_endpoint()
    optimized.delete_model()
    told = {"endpoint": predictor.endpoint_name, "answer": answer, "image": optimized.image_uri}
    sys.stdout.write(f"{json.dumps(told)}\n")


main(*sys.argv[1:])

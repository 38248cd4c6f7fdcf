"""Optimize, deploy, ask and delete with SageMaker's SDK 3, as its documentation shows it.

    sagemaker_sdk3.py BUCKET METHOD

The model is in the bucket, below models/tiny; its config.json, which the SDK asks the hub for,
is read there as well.  Prints one JSON object.
"""

from __future__ import annotations

import json
import sys

import short_pauses
from hub_of_bucket import ASKED, SAMPLES, answer_for_hub
from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.serve import ModelBuilder
from sagemaker.serve.builder.schema_builder import SchemaBuilder
from sagemaker.serve.mode.function_pointers import Mode

FEW_TEXTS = {"OPTION_CALIB_SIZE": "8", "OPTION_CALIB_MAX_SEQ_LENGTH": "64"}


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
        instance_type="ml.g5.12xlarge",
    )
    model = builder.optimize(
        model_name="sdk3",  # the SDK's own, `optimize_model`, is no name that the API takes
        instance_type="ml.g5.12xlarge",
        output_path=f"s3://{bucket}/sdk3/",
        quantization_config={"OverrideEnvironment": {"OPTION_QUANTIZE": method, **FEW_TEXTS}},
    )
    endpoint = builder.deploy(
        initial_instance_count=1, instance_type="ml.g5.12xlarge", endpoint_name="sdk3"
    )
    answer = endpoint.invoke(body=json.dumps(ASKED), content_type="application/json")
    told = {
        "endpoint": endpoint.endpoint_name,
        "answer": json.loads(answer.body.read()),
        "image": model.primary_container.image,
    }
    endpoint.delete()
    model.delete()
    sys.stdout.write(f"\n{json.dumps(told)}\n")  # the SDK's own display may not have ended its line


main(*sys.argv[1:])

"""List, set and optimize with deployment configurations of JumpStart, by SageMaker's SDK 2 or 3.

    sagemaker_jumpstart.py BUCKET v2|v3

Prints one JSON object in its last line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import short_pauses

ID, INSTANCE, CONFIG = "meta-tiny", "ml.g5.12xlarge", "lmi-optimized"
SAMPLES = ({"inputs": "hi", "parameters": {}}, [{"generated_text": ""}])


def main(bucket: str, version: str) -> None:
    short_pauses.shorten()
    builder = builder_of(version)
    names = [one["DeploymentConfigName"] for one in builder.list_deployment_configs()]
    given: dict[str, Any] = {}
    if version == "v3":  # hands itself no instance type without this
        builder.set_deployment_config(CONFIG, INSTANCE)
        given = {"model_name": "js", "speculative_decoding_config": {"ModelProvider": "sagemaker"}}
    else:
        builder.build()
        builder.set_deployment_config(CONFIG, INSTANCE)
    chosen = builder.get_deployment_config()["DeploymentConfigName"]
    optimized = builder.optimize(
        instance_type=INSTANCE,
        output_path=f"s3://{bucket}/jumpstart-{version}/",
        quantization_config={"OverrideEnvironment": {"OPTION_QUANTIZE": "fp8"}},
        accept_eula=True,
        job_name=f"jumpstart-{version}",
        **given,
    )
    told = {"names": names, "chosen": chosen, "optimized": type(optimized).__name__}
    sys.stdout.write(f"\n{json.dumps(told)}\n")


def builder_of(version: str) -> Any:
    """Return the builder as each SDK's documentation makes it."""
    if version == "v3":
        from sagemaker.core.helper.session_helper import Session, get_execution_role
        from sagemaker.serve import ModelBuilder
        from sagemaker.serve.builder.schema_builder import SchemaBuilder
    else:
        from sagemaker import Session, get_execution_role
        from sagemaker.serve import ModelBuilder, SchemaBuilder
    return ModelBuilder(
        model=ID,
        schema_builder=SchemaBuilder(*SAMPLES),
        role_arn=get_execution_role(),
        sagemaker_session=Session(),
    )


main(*sys.argv[1:])

"""Bodies of CreateOptimizationJob and CreateModel, as clients send them.

`sdk_awq` was recorded from `ModelBuilder.optimize()` of the SageMaker SDKs 2.257.7 and 3.27.0,
which differ in the job's name only; the three of EAGLE are the commands of AWS's announcement
of it, with a bucket in the place of what is left open there.
"""

from __future__ import annotations

from typing import Any

ROLE = "arn:aws:iam::111122223333:role/SageMakerRole"
DJL = "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference"

AWQ: dict[str, Any] = {
    "OptimizationJobName": "modelbuilderjob-3f2a",
    "DeploymentInstanceType": "ml.g5.12xlarge",
    "RoleArn": ROLE,
    "ModelSource": {"S3": {"S3Uri": "s3://models/tiny/"}},
    "OptimizationConfigs": [
        {"ModelQuantizationConfig": {"OverrideEnvironment": {"OPTION_QUANTIZE": "awq"}}}
    ],
    "OutputConfig": {"S3OutputLocation": "s3://results/out/"},
    "StoppingCondition": {"MaxRuntimeInSeconds": 36000},
}

# Tags as SDK 3 sends them: each key and each value of the user's is a tag of its own.
SDK_TAGS = [
    {"Key": "Key", "Value": "OptimizationJobName"},
    {"Key": "Value", "Value": "modelbuilderjob-3f2a"},
]

TARGET_MODEL: dict[str, Any] = {
    "ModelName": "qwen3-32b",
    "ExecutionRoleArn": ROLE,
    "PrimaryContainer": {
        "Image": f"{DJL}:0.36.0-lmi28.0.0-cu130",
        "ModelDataSource": {
            "S3DataSource": {
                "S3Uri": "s3://models/qwen3-32b/",
                "S3DataType": "S3Prefix",
                "CompressionType": "None",
            }
        },
    },
}

MODEL_WITH_HEAD: dict[str, Any] = {
    **TARGET_MODEL,
    "ModelName": "qwen3-32b-eagle",
    "PrimaryContainer": {
        **TARGET_MODEL["PrimaryContainer"],
        "AdditionalModelDataSources": [
            {
                "ChannelName": "eagle_model",
                "S3DataSource": {
                    "S3Uri": "s3://models/qwen3-eagle/",
                    "S3DataType": "S3Prefix",
                    "CompressionType": "None",
                },
            }
        ],
    },
}

EAGLE_OWN_DATA: dict[str, Any] = {
    "OptimizationJobName": "eagle-own-data",
    "DeploymentInstanceType": "ml.p5.48xlarge",
    "MaxInstanceCount": 10,
    "ModelSource": {"SageMakerModel": {"ModelName": "qwen3-32b"}},
    "OptimizationConfigs": [
        {
            "ModelSpeculativeDecodingConfig": {
                "Technique": "EAGLE",
                "TrainingDataSource": {
                    "S3DataType": "S3Prefix",
                    "S3Uri": "s3://datasets/chats/",
                },
            }
        }
    ],
    "OutputConfig": {"S3OutputLocation": "s3://results/eagle/"},
    "StoppingCondition": {"MaxRuntimeInSeconds": 432000},
    "RoleArn": ROLE,
}

EAGLE_OWN_HEAD: dict[str, Any] = {
    **EAGLE_OWN_DATA,
    "OptimizationJobName": "eagle-own-head",
    "ModelSource": {"SageMakerModel": {"ModelName": "qwen3-32b-eagle"}},
    "OutputConfig": {
        "SageMakerModel": {"ModelName": "qwen3-32b-trained"},
        "S3OutputLocation": "s3://results/eagle/",
    },
}

EAGLE_BUILT_IN_DATA: dict[str, Any] = {
    **EAGLE_OWN_DATA,
    "OptimizationJobName": "eagle-built-in-data",
    "ModelSource": {"S3": {"S3Uri": "s3://models/qwen3-32b/"}},
    "OptimizationConfigs": [{"ModelSpeculativeDecodingConfig": {"Technique": "EAGLE"}}],
}

MODELS: dict[str, dict[str, Any]] = {
    body["ModelName"]: body for body in (TARGET_MODEL, MODEL_WITH_HEAD)
}


def quantization(**environment: str) -> dict[str, Any]:
    """Return a body that quantizes, with variables of its own."""
    config = {"ModelQuantizationConfig": {"OverrideEnvironment": environment}}
    return {**AWQ, "OptimizationConfigs": [config]}


def compilation(instance: str = "ml.g5.12xlarge", **environment: str) -> dict[str, Any]:
    """Return a body that compiles for an instance."""
    config = {"ModelCompilationConfig": {"OverrideEnvironment": environment}}
    return {**AWQ, "DeploymentInstanceType": instance, "OptimizationConfigs": [config]}


def sharding(**environment: str) -> dict[str, Any]:
    """Return a body that splits the weights for the instance's devices."""
    config = {"ModelShardingConfig": {"OverrideEnvironment": environment}}
    return {**AWQ, "OptimizationConfigs": [config]}

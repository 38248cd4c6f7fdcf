"""The first cells of a notebook, and what AWS's own notebooks ask after them, by one client.

    first_cells.py boto3|v2|v3 FACTS JUMPSTART_ID [NAME…]

FACTS has what notebooks asked (`scripts/run-notebooks`); the requests of those that are named are
sent through the client's own session.  Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError

OUTSIDE = ("s3", "sagemaker-runtime", "logs")
SAMPLES = ({"inputs": "hi", "parameters": {}}, [{"generated_text": "ho"}])


def of_boto3(_: str) -> tuple[Any, dict[str, str]]:
    identity = boto3.client("sts", endpoint_url="https://sts.us-east-1.amazonaws.com")
    return boto3.Session(), {"identity": identity.get_caller_identity()["Arn"]}


def of_sdk2(model: str) -> tuple[Any, dict[str, str]]:
    from sagemaker import Session, get_execution_role, image_uris
    from sagemaker.jumpstart.model import JumpStartModel

    session = Session()
    image = image_uris.retrieve("djl-lmi", region=session.boto_region_name, version="0.29.0")
    found = JumpStartModel(model_id=model, instance_type="ml.g5.2xlarge", sagemaker_session=session)
    return session.boto_session, {
        "data": found.model_data["S3DataSource"]["S3Uri"],
        "role": get_execution_role(),
        "caller": session.get_caller_identity_arn(),
        "bucket": session.default_bucket(),
        "image": image,
    }


def of_sdk3(model: str) -> tuple[Any, dict[str, str]]:
    from sagemaker.core.helper.session_helper import Session, get_execution_role
    from sagemaker.serve.builder.schema_builder import SchemaBuilder
    from sagemaker.serve.model_builder import ModelBuilder

    session = Session()
    ModelBuilder(model=model, schema_builder=SchemaBuilder(*SAMPLES), sagemaker_session=session)
    return session.boto_session, {
        "role": get_execution_role(),
        "account": session.account_id(),
        "bucket": session.default_bucket(),
    }


def answer(session: Any, call: dict[str, Any]) -> str:
    """Ask once; return the code of a refusal, "" for none."""
    client = session.client(call["service"])
    try:
        client._make_api_call(call["operation"], call["parameters"])
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def main(client: str, facts: str, model: str, *names: str) -> None:
    session, told = {"boto3": of_boto3, "v2": of_sdk2, "v3": of_sdk3}[client](model)
    notebooks = json.loads(Path(facts).read_bytes())
    differ = []
    for name in names:
        for call in notebooks[name]["asked"]:
            if call["service"] not in OUTSIDE:
                found, recorded = answer(session, call), call.get("answer", "").split(":")[0]
                is_wait = call["operation"].startswith("Describe") and recorded
                if found != recorded and not is_wait:
                    differ.append([name, call["cell"], call["operation"], recorded, found])
    sys.stdout.write(f"{json.dumps({**told, 'differ': differ})}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

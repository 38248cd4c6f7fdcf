"""What a notebook of AWS does first, by addresses that SDKs hand to boto3; prints JSON."""

import json
import sys

import boto3
from botocore.exceptions import ClientError

STS = "https://sts.us-east-1.amazonaws.com"


def told(service: str, operation: str, **given: object) -> str:
    try:
        getattr(boto3.client(service), operation)(**given)
    except ClientError as error:
        return str(error)
    return ""


identity = boto3.client("sts", region_name="us-east-1", endpoint_url=STS).get_caller_identity()
iam = boto3.client("iam")
role = iam.get_role(RoleName=identity["Arn"].split("/")[1])["Role"]["Arn"]
iam.create_role(RoleName="own", AssumeRolePolicyDocument="{}")
iam.attach_role_policy(RoleName="own", PolicyArn="arn:aws:iam::aws:policy/ReadOnlyAccess")
s3, jumpstart = boto3.client("s3"), {"Bucket": "jumpstart-cache-prod-us-east-1"}
manifest = json.loads(s3.get_object(Key="models_manifest.json", **jumpstart)["Body"].read())
spec = json.loads(s3.get_object(Key=manifest[0]["spec_key"], **jumpstart)["Body"].read())
answers = {
    "jumpstart": [manifest[0]["model_id"], spec["hosting_artifact_key"]],
    "identity": identity["Arn"],
    "role": role,
    "policies": iam.list_attached_role_policies(RoleName="own")["AttachedPolicies"],
    "made": boto3.client("sagemaker").create_model(
        ModelName="m", ExecutionRoleArn=role, PrimaryContainer={"Image": "x"}
    )["ModelArn"],
    "others": "other" in sys.modules,  # of another `sitecustomize` on the path
    "refused": [
        told("sagemaker", "list_training_jobs"),
        told("ec2", "describe_instances"),
        told("cloudwatch", "list_dashboards"),
        told("lambda", "list_functions"),
        told("s3", "list_buckets"),
        told("s3", "get_object", Key="nothing.json", **jumpstart),
        told(
            "sagemaker-runtime", "invoke_endpoint_async", EndpointName="e", InputLocation="s3://b/k"
        ),
    ],
}
sys.stdout.write(json.dumps(answers))

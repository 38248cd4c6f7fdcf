"""Bodies of SageMaker's API, in the order in which they are sent.

Models and endpoint configurations cannot be changed: their names end in a digest of what they
hold, so that another content is another name, and applying twice finds what is there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from packager.addons.deploy.grace import with_grace
from packager.addons.deploy.sagemaker.adapters import adapter_requests
from packager.addons.deploy.sagemaker.disks import volume_gb
from packager.addons.deploy.sagemaker.requests import (
    MODEL_TAG,
    VARIANT,
    Body,
    Request,
    component_name,
    named,
    patched,
    tags_of,
)
from packager.addons.deploy.sagemaker.scaling import scaling_requests
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.addons.deploy.sagemaker.times import download_s, health_s
from packager.catalog.instances import instance_rows
from packager.core.deployment import Deployment
from packager.core.instance import Instance
from packager.core.stopping import PLATFORM_GRACE_S
from packager.core.units import MIB

DRAFT_CHANNEL = "draft_model"
EXECUTION_S = 28800  # of an update, at most

_ROUTING = {
    "least-outstanding": "LEAST_OUTSTANDING_REQUESTS",
    "random": "RANDOM",
    "prefix-aware": "PREFIX_AWARE",
}
_TAG_VALUE = re.compile(r"[\w .:/=+@-]{1,256}", re.ASCII)
STEP_PERCENT = 33  # of the capacity, that a linear or rolling update moves at once


def requests_of(deployment: Deployment, wanted: SageMakerSpec) -> tuple[Request, ...]:
    """Return every request that makes an endpoint, in order; raise `UsageError`."""
    found = _requests_of(deployment, wanted)
    wanted.patch.refuse_others((one.operation for one in found), "an operation that is sent")
    return found


def _requests_of(deployment: Deployment, wanted: SageMakerSpec) -> tuple[Request, ...]:
    models = [model_body(one, deployment.name, wanted) for one in (deployment, *wanted.pools)]
    unique = {str(body["ModelName"]): body for body in models}
    names = [str(body["ModelName"]) for body in models]
    config = config_body(deployment, wanted, names)
    endpoint: dict[str, Any] = {
        "EndpointName": deployment.name,
        "EndpointConfigName": config["EndpointConfigName"],
        "Tags": tags_of(deployment.name, wanted),
    }
    if (policy := update_policy(wanted)) is not None:
        endpoint["DeploymentConfig"] = policy
    endpoint = patched("CreateEndpoint", endpoint, wanted)
    found = [Request(operation="CreateModel", body=body) for body in unique.values()]
    found.append(Request(operation="CreateEndpointConfig", body=config))
    found.append(Request(operation="CreateEndpoint", body=endpoint))
    if wanted.components:
        component = component_body(deployment, wanted, names[0])
        found.append(Request(operation="CreateInferenceComponent", body=component))
    found += adapter_requests(deployment, wanted)
    return (*found, *scaling_requests(deployment, wanted))


def model_body(deployment: Deployment, name: str, wanted: SageMakerSpec) -> dict[str, Any]:
    """Return CreateModel's body, whose engine ends within SageMaker's grace where it can."""
    if (deployment.grace_s or 0) > PLATFORM_GRACE_S and deployment.drain_variable:
        deployment = with_grace(deployment, PLATFORM_GRACE_S)
    container: dict[str, Any] = {"Image": deployment.image}
    if wanted.subnets and not is_ecr(deployment.image):
        container["ImageConfig"] = {"RepositoryAccessMode": "Vpc"}
    if deployment.env:
        container["Environment"] = dict(deployment.env)
    weights = deployment.weights
    if weights.uri:
        container["ModelDataSource"] = {"S3DataSource": _prefix(weights.uri)}
    if weights.draft_uri:
        container["AdditionalModelDataSources"] = [
            {"ChannelName": DRAFT_CHANNEL, "S3DataSource": _prefix(weights.draft_uri)}
        ]
    if wanted.metrics and deployment.metrics_path:
        endpoints = [{"MetricsEndpointPath": deployment.metrics_path}]
        container["ContainerMetricsConfig"] = {"MetricsEndpoints": endpoints}
    body: dict[str, Any] = {
        "ExecutionRoleArn": wanted.role_arn,
        "PrimaryContainer": container,
        **_network(wanted),
    }
    if wanted.isolated:
        body["EnableNetworkIsolation"] = True
    return _named("CreateModel", name, {**body, "Tags": tags_of(name, wanted)}, wanted)


def config_body(
    deployment: Deployment, wanted: SageMakerSpec, models: Sequence[str]
) -> dict[str, Any]:
    """Return CreateEndpointConfig's body; `models` are the deployment's, then of each pool."""
    variant = _variant(deployment, wanted, models)
    body: dict[str, Any] = {"ProductionVariants": [variant]}
    if wanted.components:
        body |= {"ExecutionRoleArn": wanted.role_arn, **_network(wanted)}
        if wanted.isolated:
            body["EnableNetworkIsolation"] = True
    if wanted.capture_uri:
        body["DataCaptureConfig"] = {
            "EnableCapture": True,
            "InitialSamplingPercentage": wanted.capture_percent,
            "DestinationS3Uri": wanted.capture_uri,
            "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
            "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
        }
    if wanted.kms_key:
        body["KmsKeyId"] = wanted.kms_key
    if wanted.metrics:
        body["MetricsConfig"] = {
            "EnableEnhancedMetrics": True,
            "EnableDetailedObservability": True,
        }
    tags = tags_of(deployment.name, wanted)
    if _TAG_VALUE.fullmatch(deployment.served_name):
        tags.append({"Key": MODEL_TAG, "Value": deployment.served_name})
    return _named("CreateEndpointConfig", deployment.name, {**body, "Tags": tags}, wanted)


def _named(operation: str, name: str, body: Body, wanted: SageMakerSpec) -> dict[str, Any]:
    """Return a patched body with the name of its content, in which tags do not count."""
    made = patched(operation, body, wanted)
    content = {key: value for key, value in made.items() if key != "Tags"}
    return {f"{operation.removeprefix('Create')}Name": named(name, content), **made}


def component_body(deployment: Deployment, wanted: SageMakerSpec, model: str) -> dict[str, Any]:
    """Return CreateInferenceComponent's body."""
    needs: dict[str, Any] = {
        "MinMemoryRequiredInMb": max(math.ceil((deployment.memory_bytes or 0) / MIB), 1024)
    }
    if deployment.devices:
        needs["NumberOfAcceleratorDevicesRequired"] = accelerators(
            deployment.instance, deployment.devices
        )
    elif deployment.instance.vcpus:
        needs["NumberOfCpuCoresRequired"] = float(deployment.instance.vcpus)
    specification = {
        "ModelName": model,
        "StartupParameters": _times(deployment, wanted),
        "ComputeResourceRequirements": needs,
        "DataCacheConfig": {"EnableCaching": True},
    }
    body = {
        "InferenceComponentName": component_name(deployment.name),
        "EndpointName": deployment.name,
        "VariantName": VARIANT,
        "Specification": specification,
        "RuntimeConfig": {"CopyCount": wanted.copies},
        "Tags": tags_of(deployment.name, wanted),
    }
    return patched("CreateInferenceComponent", body, wanted)


def update_policy(wanted: SageMakerSpec) -> dict[str, Any] | None:
    """Return DeploymentConfig: how requests move to another image, and what brings them back."""
    step = {"Type": "CAPACITY_PERCENT", "Value": STEP_PERCENT}
    policy: dict[str, Any] = {}
    if wanted.update == "rolling":
        policy["RollingUpdatePolicy"] = {
            "MaximumBatchSize": step,
            "WaitIntervalInSeconds": wanted.wait_s,
            "MaximumExecutionTimeoutInSeconds": EXECUTION_S,
        }
    elif wanted.update != "all-at-once" or wanted.alarms:
        routing: dict[str, Any] = {
            "Type": wanted.update.upper().replace("-", "_"),
            "WaitIntervalInSeconds": wanted.wait_s,
        }
        if wanted.update == "canary":
            routing["CanarySize"] = {"Type": "CAPACITY_PERCENT", "Value": 10}
        if wanted.update == "linear":
            routing["LinearStepSize"] = step
        policy["BlueGreenUpdatePolicy"] = {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": wanted.wait_s,
            "MaximumExecutionTimeoutInSeconds": EXECUTION_S,
        }
    if wanted.alarms:
        alarms = [{"AlarmName": name} for name in wanted.alarms]
        policy["AutoRollbackConfiguration"] = {"Alarms": alarms}
    return policy or None


def is_ecr(image: str) -> bool:
    """Check that an image is in a registry of ECR, which SageMaker pulls from by itself."""
    host = image.partition("/")[0]
    return ".dkr.ecr." in host and host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def accelerators(instance: Instance, devices: int) -> int:
    """Return accelerators as SageMaker counts them: chips, of which each has several cores."""
    if instance.kind != "neuron":
        return devices
    row = next((row for known, row in instance_rows() if known.name == instance.name), None)
    chips = int(float(row["accel_count"])) if row and row["accel_count"] else instance.devices
    return max(math.ceil(devices * chips / instance.devices), 1)


def ami_of(deployment: Deployment, wanted: SageMakerSpec) -> str:
    """Return InferenceAmiVersion; "" where SageMaker's own will do."""
    return deployment.inference_ami if wanted.ami is None else wanted.ami


def _variant(
    deployment: Deployment, wanted: SageMakerSpec, models: Sequence[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {"VariantName": VARIANT, "InitialInstanceCount": wanted.instances}
    if wanted.pools:
        found["ModelName"] = models[0]
        found["InstancePools"] = [
            {"InstanceType": one.instance.name, "ModelNameOverride": model, "Priority": priority}
            for priority, (one, model) in enumerate(
                zip((deployment, *wanted.pools), models, strict=True), 1
            )
        ]
    else:
        found["InstanceType"] = deployment.instance.name
        if not wanted.components:
            found["ModelName"] = models[0]
    if not wanted.components:
        found["InitialVariantWeight"] = 1.0
        found |= _times(deployment, wanted)
    if ami := ami_of(deployment, wanted):
        found["InferenceAmiVersion"] = ami
    if (volume := volume_gb(deployment, wanted.volume_gb)) is not None:
        found["VolumeSizeInGB"] = volume
    if wanted.components and wanted.scales:
        found["ManagedInstanceScaling"] = {
            "Status": "ENABLED",
            "MinInstanceCount": wanted.least,
            "MaxInstanceCount": wanted.max_instances,
        }
    routing: dict[str, Any] = {"RoutingStrategy": _ROUTING[wanted.routing]}
    found["RoutingConfig"] = routing
    return found


def _times(deployment: Deployment, wanted: SageMakerSpec) -> dict[str, Any]:
    """Return the time-outs of a start; of several pools the longest."""
    each = (deployment, *wanted.pools)
    health = wanted.health_s or max(map(health_s, each))
    found = {"ContainerStartupHealthCheckTimeoutInSeconds": health}
    downloads = [seconds for one in each if (seconds := download_s(one)) is not None]
    download = wanted.download_s or max(downloads, default=None)
    return found | ({} if download is None else {"ModelDataDownloadTimeoutInSeconds": download})


def _network(wanted: SageMakerSpec) -> dict[str, Any]:
    if not wanted.subnets:
        return {}
    groups, subnets = list(wanted.security_groups), list(wanted.subnets)
    return {"VpcConfig": {"SecurityGroupIds": groups, "Subnets": subnets}}


def _prefix(uri: str) -> dict[str, Any]:
    return {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}

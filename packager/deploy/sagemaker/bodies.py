"""Bodies of SageMaker's API, in the order in which they are sent.

Models and endpoint configurations cannot be changed: their names end in a digest of what they
hold, so that another content is another name, and applying twice finds what is there.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from packager.catalog.instances import instance_rows
from packager.core.deployment import Deployment
from packager.core.instance import Instance
from packager.core.units import MIB
from packager.core.values import dataclass
from packager.deploy.sagemaker.disks import volume_gb
from packager.deploy.sagemaker.times import download_s, health_s
from packager.deploy.sagemaker.wanted import SageMakerWanted

Body = Mapping[str, Any]
Service = Literal["sagemaker", "application-autoscaling"]

VARIANT = "AllTraffic"
OWNER_TAG = "packager:deployment"
MODEL_TAG = "packager:model"  # of a configuration: the name that clients send
SCALES_TAG = "packager:scales"  # of an endpoint: the resource that AWS scales
DRAFT_CHANNEL = "draft_model"
LONGEST_NAME = 63
EXECUTION_S = 28800  # of an update, at most

_ROUTING = {
    "least-outstanding": "LEAST_OUTSTANDING_REQUESTS",
    "random": "RANDOM",
    "prefix-aware": "PREFIX_AWARE",
}
_TAG_VALUE = re.compile(r"[\w .:/=+@-]{1,256}", re.ASCII)
SHARE_OF_BATCH = 0.7  # at which there is one more: starting takes minutes
STEP_PERCENT = 33  # of the capacity, that a linear or rolling update moves at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: an operation of a service, and its body."""

    service: Service = "sagemaker"
    operation: str
    body: Body

    @property
    def resource(self) -> str:
        """Return what it makes: `Model` of `CreateModel`."""
        words = self.operation
        for verb in ("Create", "Register", "Put", "Update"):
            words = words.removeprefix(verb)
        return words

    @property
    def name(self) -> str:
        """Return the name of what it makes."""
        key = {"ScalableTarget": "ResourceId", "ScalingPolicy": "PolicyName"}
        return str(self.body[key.get(self.resource, f"{self.resource}Name")])


def requests_of(deployment: Deployment, wanted: SageMakerWanted) -> tuple[Request, ...]:
    """Return every request that makes an endpoint, in order."""
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
    found = [Request(operation="CreateModel", body=body) for body in unique.values()]
    found.append(Request(operation="CreateEndpointConfig", body=config))
    found.append(Request(operation="CreateEndpoint", body=endpoint))
    if wanted.components:
        component = component_body(deployment, wanted, names[0])
        found.append(Request(operation="CreateInferenceComponent", body=component))
    return (*found, *_scaling(deployment, wanted))


def model_body(deployment: Deployment, name: str, wanted: SageMakerWanted) -> dict[str, Any]:
    """Return CreateModel's body."""
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
    return {"ModelName": named(name, body), **body, "Tags": tags_of(name, wanted)}


def config_body(
    deployment: Deployment, wanted: SageMakerWanted, models: Sequence[str]
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
    name = named(deployment.name, body)
    tags = tags_of(deployment.name, wanted)
    if _TAG_VALUE.fullmatch(deployment.served_name):
        tags.append({"Key": MODEL_TAG, "Value": deployment.served_name})
    return {"EndpointConfigName": name, **body, "Tags": tags}


def component_body(deployment: Deployment, wanted: SageMakerWanted, model: str) -> dict[str, Any]:
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
    return {
        "InferenceComponentName": component_name(deployment.name),
        "EndpointName": deployment.name,
        "VariantName": VARIANT,
        "Specification": specification,
        "RuntimeConfig": {"CopyCount": wanted.copies},
        "Tags": tags_of(deployment.name, wanted),
    }


def update_policy(wanted: SageMakerWanted) -> dict[str, Any] | None:
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


def named(name: str, body: Body) -> str:
    """Return a name that ends in a digest of the body."""
    data = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return f"{name[: LONGEST_NAME - 9].rstrip('-')}-{hashlib.sha256(data).hexdigest()[:8]}"


def component_name(name: str) -> str:
    """Return the name of an endpoint's component."""
    return f"{name[: LONGEST_NAME - 6].rstrip('-')}-model"


def tags_of(name: str, wanted: SageMakerWanted) -> list[dict[str, str]]:
    """Return tags: the deployment's, by which it is found and deleted, and the user's."""
    own = {OWNER_TAG: name}
    return [{"Key": key, "Value": value} for key, value in {**wanted.tags, **own}.items()]


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


def ami_of(deployment: Deployment, wanted: SageMakerWanted) -> str:
    """Return InferenceAmiVersion; "" where SageMaker's own will do."""
    return deployment.inference_ami if wanted.ami is None else wanted.ami


def _variant(
    deployment: Deployment, wanted: SageMakerWanted, models: Sequence[str]
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
            "MinInstanceCount": least_of(wanted),
            "MaxInstanceCount": wanted.max_instances,
        }
    routing: dict[str, Any] = {"RoutingStrategy": _ROUTING[wanted.routing]}
    found["RoutingConfig"] = routing
    return found


def _times(deployment: Deployment, wanted: SageMakerWanted) -> dict[str, Any]:
    """Return the time-outs of a start; of several pools the longest."""
    each = (deployment, *wanted.pools)
    health = wanted.health_s or max(map(health_s, each))
    found = {"ContainerStartupHealthCheckTimeoutInSeconds": health}
    downloads = [seconds for one in each if (seconds := download_s(one)) is not None]
    download = wanted.download_s or max(downloads, default=None)
    return found | ({} if download is None else {"ModelDataDownloadTimeoutInSeconds": download})


def least_of(wanted: SageMakerWanted) -> int:
    """Return the least number of instances."""
    return wanted.instances if wanted.min_instances is None else wanted.min_instances


def _scaling(deployment: Deployment, wanted: SageMakerWanted) -> tuple[Request, ...]:
    target = wanted.target or (
        max(round(SHARE_OF_BATCH * deployment.max_batch, 1), 1.0) if deployment.max_batch else None
    )
    if not wanted.scales or target is None:
        return ()
    if wanted.components:
        metric = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
        resource = f"inference-component/{component_name(deployment.name)}"
        dimension = "sagemaker:inference-component:DesiredCopyCount"
    else:
        metric = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
        resource = f"endpoint/{deployment.name}/variant/{VARIANT}"
        dimension = "sagemaker:variant:DesiredInstanceCount"
    place = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": resource,
        "ScalableDimension": dimension,
    }
    register = {**place, "MinCapacity": least_of(wanted), "MaxCapacity": wanted.max_instances}
    policy = {
        "PolicyName": f"{deployment.name}-requests",
        **place,
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": float(target),
            "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
            "ScaleInCooldown": 600,  # as long as an instance takes to come back
            "ScaleOutCooldown": 60,
        },
    }
    return (
        Request(
            service="application-autoscaling", operation="RegisterScalableTarget", body=register
        ),
        Request(service="application-autoscaling", operation="PutScalingPolicy", body=policy),
    )


def _network(wanted: SageMakerWanted) -> dict[str, Any]:
    if not wanted.subnets:
        return {}
    groups, subnets = list(wanted.security_groups), list(wanted.subnets)
    return {"VpcConfig": {"SecurityGroupIds": groups, "Subnets": subnets}}


def _prefix(uri: str) -> dict[str, Any]:
    return {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}

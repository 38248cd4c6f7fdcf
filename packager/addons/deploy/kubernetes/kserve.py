"""KServe's deployer: InferenceService with v1beta1, LLMInferenceService with v1alpha2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packager.addons.deploy.kubernetes.checks import check_cluster, check_scaling
from packager.addons.deploy.kubernetes.deployer import one_node, render_files
from packager.addons.deploy.kubernetes.machines import resources
from packager.addons.deploy.kubernetes.objects import metadata
from packager.addons.deploy.kubernetes.patching import patched
from packager.addons.deploy.kubernetes.pods import container, environment, literal, pod_spec
from packager.addons.deploy.kubernetes.spec import IMAGE_VOLUMES, KubernetesSpec
from packager.addons.deploy.servers import kserve_engines
from packager.core.deployment import Deployment, RenderedFiles
from packager.core.errors import UsageError
from packager.core.findings import Finding

CUSTOM = "kserve-container"  # the name by which KServe finds the server among containers
LLM = "main"  # the same of an LLMInferenceService
SCHEMES = {"native": "oci+native://", "modelcar": "oci://"}
_POD_ONLY = ("containers",)  # the rest of a pod's fields are the predictor's own


class KServeDeployer:
    """Describes one InferenceService, or LLMInferenceService."""

    name = "kserve"

    def check(self, deployment: Deployment, wanted: KubernetesSpec) -> Iterator[Finding]:
        """Yield findings for what KServe would refuse, or serve otherwise than it was planned."""
        one_node(deployment, "KServe")  # its own templates know several for data parallelism only
        if wanted.scaler == "hpa" or wanted.monitor or wanted.prepull:
            raise UsageError(
                "KServe makes autoscalers and monitors by itself",
                hint="give --max-replicas; `packager deploy kubernetes` makes the others",
            )
        yield from check_scaling(deployment, wanted)
        found = check_cluster(deployment, wanted)
        # KServe's storage initializer reads buckets itself.
        yield from (one for one in found if one.code != "deploy-weights-unmounted")
        yield from self._storage(deployment, wanted)

    def _storage(self, deployment: Deployment, wanted: KubernetesSpec) -> Iterator[Finding]:
        if wanted.adapters and (wanted.storage != "container" or wanted.llm):
            raise UsageError(
                "KServe's own server is started without the image's options: it loads no adapters",
                hint="leave --llm and --storage out, or patch spec.model.lora (hf, s3, pvc)",
            )
        if wanted.storage == "native" and wanted.version < IMAGE_VOLUMES:
            what = "native OCI storage mounts a part of an image, which came with Kubernetes 1.33"
            yield Finding("error", "deploy-image-volume", what, "use --storage modelcar")
        if wanted.storage != "container" or wanted.llm:
            what = "KServe's own server reads the weights: options of the image are not used"
            hint = "the files have to be at /models in the image; --storage container serves it"
            yield Finding("warning", "deploy-kserve-server", what, hint)
        engine = deployment.engine  # "" where the image names none
        if wanted.llm and engine and engine not in kserve_engines():
            what = f"an LLMInferenceService starts vLLM, and the image has {engine}"
            yield Finding("error", "deploy-kserve-engine", what, "leave --llm out")
        if wanted.llm and wanted.storage == "container" and not deployment.weights.uri:
            what = "an LLMInferenceService names its model: the image itself, as a volume"
            yield Finding("note", "deploy-kserve-volume", what, "needs Kubernetes 1.33")

    def objects(self, deployment: Deployment, wanted: KubernetesSpec) -> Mapping[str, Any]:
        """Return the one object."""
        if wanted.llm:
            made = {"10-llm-inference-service.yaml": llm_inference_service(deployment, wanted)}
        else:
            made = {"10-inference-service.yaml": inference_service(deployment, wanted)}
        return patched(made, wanted)

    def render(self, deployment: Deployment, wanted: KubernetesSpec) -> RenderedFiles:
        """Return a directory that `kubectl apply -k` takes."""
        findings = tuple(self.check(deployment, wanted))
        return render_files(self.objects, deployment, wanted, findings)


def inference_service(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return an InferenceService: the image as its own server, or as storage of KServe's."""
    pod = pod_spec(deployment, wanted, CUSTOM)
    predictor: dict[str, Any] = {
        "minReplicas": wanted.replicas,
        "maxReplicas": wanted.max_replicas or wanted.replicas,
    }
    if wanted.storage == "container":
        predictor |= _own_server(pod, deployment)
    else:
        rest = {name: pod[name] for name in pod if name not in (*_POD_ONLY, "volumes")}
        server: dict[str, Any] = {
            "modelFormat": {"name": "huggingface"},
            "args": [f"--model_name={literal(deployment.served_name or deployment.name)}"],
            "storageUri": storage_uri(deployment, wanted),
        }
        if variables := environment(deployment, wanted):
            server["env"] = variables
        predictor |= {**rest, "model": server | _sized(deployment)}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            **metadata(deployment, wanted),
            "annotations": {"serving.kserve.io/deploymentMode": "Standard"},
        },
        "spec": {"predictor": predictor},
    }


def llm_inference_service(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return an LLMInferenceService. Its templates give the command: `vllm serve /mnt/models`."""
    server = container(deployment, wanted, LLM)
    kept = ("name", "image", "imagePullPolicy", "env", "resources", "securityContext")
    pod = pod_spec(deployment, wanted, LLM)
    template = {name: value for name, value in pod.items() if name != "volumes"}
    template["containers"] = [{name: server[name] for name in kept if name in server}]
    main = template["containers"][0]
    # The rest of the probe is the template's, which knows whether the port uses TLS.
    main["startupProbe"] = {
        name: server["startupProbe"][name] for name in ("periodSeconds", "failureThreshold")
    }
    # NVIDIA's CDI hook writes into the root file system (KServe's own template, 2026-08).
    main["securityContext"] = {**server["securityContext"], "readOnlyRootFilesystem": False}
    main["volumeMounts"] = server["volumeMounts"]
    template["volumes"] = pod["volumes"]
    spec: dict[str, Any] = {
        "model": {
            "uri": storage_uri(deployment, wanted),
            "name": deployment.served_name or deployment.name,
        },
        "replicas": wanted.replicas,
    }
    if deployment.devices:
        spec["parallelism"] = {"tensor": deployment.devices}
    spec |= {"router": {"route": {}, "gateway": {}, "scheduler": {}}, "template": template}
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": metadata(deployment, wanted),
        "spec": spec,
    }


def storage_uri(deployment: Deployment, wanted: KubernetesSpec) -> str:
    """Return where KServe finds the weights: a bucket, a claim, or the image."""
    if wanted.claim:
        return f"pvc://{wanted.claim}/"
    if deployment.weights.uri:
        return deployment.weights.uri
    scheme = SCHEMES.get(wanted.storage, SCHEMES["native"])
    return scheme + (wanted.weights_image or deployment.image)


def _own_server(pod: Mapping[str, Any], deployment: Deployment) -> dict[str, Any]:
    """Return the fields of a predictor whose container is the image itself."""
    made = dict(pod)
    if deployment.weights.uri:  # KServe mounts the files at /mnt/models, and passes the path
        server = dict(made["containers"][0])
        storage = {"name": "STORAGE_URI", "value": deployment.weights.uri}
        server["env"] = [*server.get("env", ()), storage]
        made["containers"] = [server]
    return made


def _sized(deployment: Deployment) -> dict[str, Any]:
    asked = resources(deployment)
    return {"resources": asked} if asked else {}

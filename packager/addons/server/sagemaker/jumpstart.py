"""Models of JumpStart: ids that the server's operator maps to other places.

SageMaker's SDKs read lists and specifications of models from AWS's JumpStart bucket
(`jumpstart-cache-prod-REGION`), and name artifacts there in what they ask for.  Both are made from
the mapping here: nothing is stored in a bucket of that name.  Keys and fields are those that SDK
2.257 and sagemaker-core 2.27 read (`jumpstart/cache.py`, `jumpstart/types.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from packager.addons.deploy.sagemaker.shapes import service_model
from packager.catalog.containers import containers
from packager.catalog.instances import instances
from packager.core.references import parse_bucket_place
from packager.models.mapped import MappedModel

BUCKET = "jumpstart-cache-prod-"  # and the region
BUCKETS = (BUCKET, "sagemaker-sd-models-prod-")  # the second for drafts of SageMaker's own
MANIFEST, PROPRIETARY = "models_manifest.json", "proprietary-sdk-manifest.json"
VERSION = "1.0.0"
INSTANCE = "ml.g5.2xlarge"  # where an SDK's user names none
LMI = "0.36.0"  # of djl-lmi in both SDKs' lists of images
PLAIN, WITH_DRAFT = "lmi", "lmi-optimized"  # names of deployment configurations
_PREFIX, _DRAFT = "packager/", "draft"  # of the artifacts' keys
_ALIAS = "alias_ecr_uri_1"  # the one that SDK 2 looks for in a configuration
_REGION = re.compile(r"\.ecr\.[a-z0-9-]+\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpStart:
    """Ids of models, and where each is: `s3://BUCKET/PREFIX`, or a directory of this machine."""

    places: Mapping[str, str] = field(default_factory=dict)
    drafts: Mapping[str, str] = field(default_factory=dict)  # of those that have a draft model

    def find(self, uri: str) -> str | None:
        """Return the mapped place of a model, or of its draft, for an address in AWS's bucket."""
        found = parse_bucket_place(uri)
        if found is None or not found.bucket.startswith(BUCKETS):
            return None
        name, _, part = found.key.removeprefix(_PREFIX).strip("/").partition("/")
        return {"": self.places, _DRAFT: self.drafts}.get(part, {}).get(name)

    def document(self, bucket: str, key: str) -> Any:
        """Return an object of AWS's bucket; None for a missing one."""
        region = bucket.removeprefix(BUCKET)
        if key == MANIFEST:
            return [_header(name) for name in sorted(self.places)]
        if key == PROPRIETARY:
            return [_header("packager-no-proprietary-models")]  # the SDKs want one at least
        found = (name for name in self.places if key == _spec_key(name))
        return next(
            (_specification(name, region, has_draft=name in self.drafts) for name in found), None
        )


NO_JUMPSTART = JumpStart()


def jumpstart_of(mapped: Mapping[str, MappedModel]) -> JumpStart:
    """Return the server's answers for mapped ids."""
    return JumpStart(
        places={name: one.place for name, one in mapped.items()},
        drafts={name: one.draft for name, one in mapped.items() if one.draft},
    )


def _spec_key(name: str) -> str:
    return f"community_models_specs/{name}/specs_v{VERSION}.json"


def _header(name: str) -> dict[str, str]:
    return {
        "model_id": name,
        "version": VERSION,
        "min_version": "2.0.0",  # of the SDK
        "spec_key": _spec_key(name),
    }


def _specification(name: str, region: str, *, has_draft: bool) -> dict[str, Any]:
    """Return a model's specification: an LMI image, the artifacts, and its instance types."""
    artifacts = f"{_PREFIX}{name}/"
    json_type = "application/json"
    return {
        "model_id": name,
        "url": "",
        "version": VERSION,
        "min_sdk_version": "2.0.0",
        "training_supported": False,
        "incremental_training_supported": False,
        "hosting_ecr_specs": {
            "framework": "djl-lmi",
            "framework_version": LMI,
            "py_version": "py310",
        },
        "hosting_instance_type_variants": _variants(region),
        "hosting_artifact_key": artifacts,
        "hosting_prepacked_artifact_key": artifacts,
        "hosting_script_key": "",
        "hosting_use_script_uri": False,
        "inference_environment_variables": [],
        "inference_vulnerable": False,
        "inference_dependencies": [],
        "inference_vulnerabilities": [],
        "training_vulnerable": False,
        "training_dependencies": [],
        "training_vulnerabilities": [],
        "deprecated": False,
        "default_inference_instance_type": INSTANCE,
        "supported_inference_instance_types": _instances(),
        "predictor_specs": {
            "supported_content_types": [json_type],
            "supported_accept_types": [json_type],
            "default_content_type": json_type,
            "default_accept_type": json_type,
        },
        "model_kwargs": {},
        "deploy_kwargs": {},
        "inference_enable_network_isolation": False,
        "resource_name_base": "packager",
        **_deployment_configs(name, region, has_draft=has_draft),
    }


def _variants(region: str) -> dict[str, Any]:
    """Return which image serves on which family of instances."""
    return {
        "regional_aliases": {region: {_ALIAS: _image(region)}},
        "variants": {
            family: {"regional_properties": {"image_uri": f"${_ALIAS}"}} for family in _families()
        },
    }


@cache
def _families() -> tuple[str, ...]:
    """Return all families of SageMaker's instances, those without GPUs included.

    SDK 2 makes a model for `ml.c5.xlarge` before it is told which instance it is for.
    """
    found = service_model()["shapes"]["ProductionVariantInstanceType"]["enum"]
    return tuple(sorted({name.split(".")[1] for name in found}))


def _deployment_configs(name: str, region: str, *, has_draft: bool) -> dict[str, Any]:
    """Return the deployment configurations: LMI, and LMI with the draft if it is mapped.

    The first of the ranking is an SDK's default.
    """
    components: dict[str, Any] = {
        PLAIN: {
            "hosting_ecr_uri": _image(region),
            "hosting_instance_type_variants": _variants(region),
            "default_inference_instance_type": INSTANCE,
            "supported_inference_instance_types": _instances(),
        }
    }
    if has_draft:
        source = {
            "channel_name": "draft_model",
            "artifact_version": "v1",
            "s3_data_source": {
                "compression_type": "None",
                "s3_data_type": "S3Prefix",
                "s3_uri": f"{_PREFIX}{name}/{_DRAFT}/",
            },
        }
        components[WITH_DRAFT] = {
            **components[PLAIN],
            "hosting_additional_data_sources": {"speculative_decoding": [source]},
        }
    accelerated = {WITH_DRAFT: [{"type": "Speculative-Decoding", "enabled": True}]}
    return {
        "inference_configs": {
            one: {
                "component_names": [one],
                **({"acceleration_configs": accelerated[one]} if one in accelerated else {}),
            }
            for one in components
        },
        "inference_config_components": components,
        "inference_config_rankings": {
            "overall": {"description": "what packager serves", "rankings": list(components)}
        },
    }


def _image(region: str) -> str:
    """Return the newest image of LMI that the catalog has, in a region."""
    image = next(one.default_base for one in containers() if one.family == "lmi")
    return _REGION.sub(f".ecr.{region}.", image)


def _instances() -> list[str]:
    """Return SageMaker's instances with GPUs that the catalog has."""
    named = [one.name for one in instances() if one.kind == "nvidia"]
    return sorted(name for name in named if name.startswith("ml."))

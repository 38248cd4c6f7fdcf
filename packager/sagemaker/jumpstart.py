"""Models of JumpStart: ids that the server's operator maps to places of his own.

SageMaker's SDKs read lists and specifications of models from AWS's JumpStart bucket
(`jumpstart-cache-prod-REGION`), and name artifacts there in what they ask for.  Both are made from
the mapping here: nothing is stored in a bucket of that name.  Keys and fields are those that SDK
2.257 and sagemaker-core 2.27 read (`jumpstart/cache.py`, `jumpstart/types.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from packager.catalog.containers import containers
from packager.catalog.instances import instances
from packager.core.documents import shorten
from packager.core.references import parse_bucket_place
from packager.core.values import dataclass
from packager.errors import NotFound, UsageError

BUCKET = "jumpstart-cache-prod-"  # and the region
MANIFEST, PROPRIETARY = "models_manifest.json", "proprietary-sdk-manifest.json"
VERSION = "1.0.0"
INSTANCE = "ml.g5.2xlarge"  # where an SDK's user names none
LMI = "0.36.0"  # of djl-lmi in both SDKs' lists of images
_PREFIX = "packager/"  # of the artifacts' keys
_REGION = re.compile(r"\.ecr\.[a-z0-9-]+\.")
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpStart:
    """Ids of models, and where each is: `s3://BUCKET/PREFIX`, or a directory of this machine."""

    places: Mapping[str, str] = field(default_factory=dict)

    def find(self, uri: str) -> str | None:
        """Return the place of a mapped model whose artifacts in AWS's bucket a document names."""
        found = parse_bucket_place(uri)
        if found is None or not found.bucket.startswith(BUCKET):
            return None
        return self.places.get(found.key.removeprefix(_PREFIX).strip("/"))

    def document(self, bucket: str, key: str) -> Any:
        """Return what an object of AWS's bucket says; None where there is no such object."""
        region = bucket.removeprefix(BUCKET)
        if key == MANIFEST:
            return [_header(name) for name in sorted(self.places)]
        if key == PROPRIETARY:
            return [_header("packager-no-proprietary-models")]  # the SDKs want one at least
        found = (name for name in self.places if key == _spec_key(name))
        return next((_specification(name, region) for name in found), None)


NO_JUMPSTART = JumpStart()


def parse_jumpstart(texts: Iterable[str]) -> JumpStart:
    """Read `ID=s3://BUCKET/PREFIX` and `ID=DIRECTORY`; raises `UsageError`, `NotFound`."""
    places: dict[str, str] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or not _ID.fullmatch(name):
            raise UsageError(
                f"--jumpstart {shorten(text, 200)} is not ID=PLACE",
                hint="such as meta-textgeneration-llama-3-8b=s3://models/llama-3-8b/",
            )
        if name in places:
            raise UsageError(f"--jumpstart maps {name!r} twice", hint="give each id one place")
        if parse_bucket_place(place) is None:
            directory = Path(place).expanduser().absolute()
            if not directory.is_dir():
                raise NotFound(
                    f"--jumpstart {name!r} is at {shorten(place, 200)}, which is no directory",
                    hint="name a directory of this machine, or s3://BUCKET/PREFIX",
                )
            place = str(directory)
        places[name] = place
    return JumpStart(places=places)


def _spec_key(name: str) -> str:
    return f"community_models_specs/{name}/specs_v{VERSION}.json"


def _header(name: str) -> dict[str, str]:
    return {
        "model_id": name,
        "version": VERSION,
        "min_version": "2.0.0",  # of the SDK
        "spec_key": _spec_key(name),
    }


def _specification(name: str, region: str) -> dict[str, Any]:
    """Return a model's specification: an LMI image, the artifacts, what it may run on."""
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
        "hosting_instance_type_variants": {
            "regional_aliases": {region: {"lmi": _image(region)}},
            "variants": {
                family: {"regional_properties": {"image_uri": "$lmi"}}
                for family in sorted({name.split(".")[1] for name in _instances()})
            },
        },
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
    }


def _image(region: str) -> str:
    """Return the newest image of LMI that the catalog has, in a region."""
    image = next(one.default_base for one in containers() if one.family == "lmi")
    return _REGION.sub(f".ecr.{region}.", image)


def _instances() -> list[str]:
    """Return SageMaker's instances with GPUs that the catalog has."""
    named = [one.name for one in instances() if one.kind == "nvidia"]
    return sorted(name for name in named if name.startswith("ml."))

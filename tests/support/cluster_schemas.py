"""What API servers say of manifests: Kubernetes' own schemas, and those of custom resources."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

CRDS = Path(__file__).parent / "data" / "crds"
CUSTOM = (
    "InferenceEndpointConfig",
    "InferenceService",
    "LLMInferenceService",
    "LeaderWorkerSet",
    "ScaledObject",
    "ServiceMonitor",
)
LOCAL = ("Kustomization",)  # read by kubectl, and never sent


def check_document(document: dict[str, Any], version: str) -> None:
    """Raise where an API server of that version would refuse a field, or drop it."""
    kind = document["kind"]
    if kind in LOCAL:
        assert set(document) == {"apiVersion", "kind", "resources"}
    elif kind in CUSTOM:
        crd = custom_resource(kind.lower())
        served = document["apiVersion"].rpartition("/")
        assert crd["spec"]["group"] == served[0]
        custom_validator(kind.lower(), served[2]).validate(document)
    else:
        plain_validator(document["apiVersion"], kind, version).validate(document)


@cache
def plain_validator(api: str, kind: str, version: str) -> jsonschema.Draft202012Validator:
    """Return the validator of one kind, which refuses fields that the version has not."""
    place = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    place /= f"v{version}.0-local-strict"
    group, _, served = api.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group, served) if part)
    schema = json.loads((place / f"{name}.json").read_text())
    return jsonschema.Draft202012Validator(schema, registry=_definitions(place))


@cache
def _definitions(place: Path) -> Registry[Any]:
    text = (place / "_definitions.json").read_text()
    shared: Resource[Any] = Resource(contents=json.loads(text), specification=DRAFT202012)
    return Registry().with_resource("_definitions.json", shared).crawl()


@cache
def custom_resource(name: str) -> dict[str, Any]:
    """Return a CustomResourceDefinition without its words."""
    found: dict[str, Any] = json.loads(gzip.decompress((CRDS / f"{name}.json.gz").read_bytes()))
    return found


@cache
def custom_validator(name: str, version: str) -> jsonschema.Draft202012Validator:
    """Return the validator of one served version."""
    versions = custom_resource(name)["spec"]["versions"]
    served = next(one for one in versions if one["name"] == version and one["served"])
    schema = _strict(served["schema"]["openAPIV3Schema"])
    for envelope in ("metadata", "apiVersion", "kind"):
        schema["properties"][envelope] = {}
    return jsonschema.Draft202012Validator(schema)


def _strict(schema: Any) -> Any:
    """Return a structural schema that refuses what an API server would drop."""
    if not isinstance(schema, dict):
        return schema
    made = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes")}
    for key in ("properties",):
        if key in made:
            made[key] = {name: _strict(one) for name, one in made[key].items()}
    for key in ("items", "additionalProperties", "not"):
        if key in made:
            made[key] = _strict(made[key])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in made:  # they add conditions, and name no further fields
            made[key] = [dict(one) for one in made[key]]
    if schema.get("x-kubernetes-int-or-string"):
        made = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    elif "properties" in made and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made

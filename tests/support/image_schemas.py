"""Checking documents against the schemas of the OCI and ModelPack specifications."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

from tests.support.places import DATA

SCHEMAS = DATA / "images"
MANIFEST, CONFIG, INDEX = "image-manifest-schema", "config-schema", "image-index-schema"
LAYOUT = "image-layout-schema"

# image-spec's schema.go lists these addresses: its `$ref`s are relative to several `id`s.
_PLACES = (
    "https://opencontainers.org/schema/",
    "https://opencontainers.org/schema/image/",
    "https://opencontainers.org/schema/image/descriptor/",
    "https://opencontainers.org/schema/image/manifest/",
    "https://opencontainers.org/schema/image/index/",
)


def check_oci(document: bytes, schema: str) -> None:
    """Raise unless `document` is what the OCI image specification's `schema` allows."""
    files = {path.name: json.loads(path.read_bytes()) for path in (SCHEMAS / "oci").iterdir()}
    resources = [
        (place + name, Resource.from_contents(content, default_specification=DRAFT4))
        for name, content in files.items()
        for place in _PLACES
    ]
    registry: Registry[Any] = Registry().with_resources(resources)
    jsonschema.Draft4Validator(files[f"{schema}.json"], registry=registry).validate(
        json.loads(document)
    )


def check_modelpack_config(document: bytes) -> None:
    """Raise unless `document` is a ModelPack configuration."""
    schema = json.loads((SCHEMAS / "modelpack/config-schema.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(json.loads(document))

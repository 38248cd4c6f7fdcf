"""Images that others publish are named by digest, and renewed by one command."""

from __future__ import annotations

import json

from tests.support.doubles.registry import FakeRegistry, sha256
from tests.unit.containers.test_pinned_images import renew

INDEX = "application/vnd.oci.image.index.v1+json"


def test_the_digest_is_the_one_that_the_registry_has_under_the_tag() -> None:
    manifest = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
    with FakeRegistry() as registry:
        registry.manifests["team/python", "3.12"] = (INDEX, manifest)

        assert renew.ask_registry(f"{registry.host}/team/python:3.12") == sha256(manifest)

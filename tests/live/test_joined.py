"""An index of images for two platforms in a real registry, taken by skopeo and Docker."""

from __future__ import annotations

import json

import pytest

from tests.live.building import told
from tests.live.image_tools import inspected, skopeo
from tests.support.commandline import TINY, Packager

pytestmark = pytest.mark.live

COMMON = ("build", "--model", str(TINY), "--base", "scratch", "--compile", "off")
INSTANCES = {"amd64": "ml.c7i.4xlarge", "arm64": "c8g.4xlarge"}


def test_a_registry_skopeo_and_docker_take_the_index(
    packager: Packager, registry: str, engine: str
) -> None:
    import docker

    name = f"{registry}/joined/tiny"
    built = {
        kind: told(packager, *COMMON, "--instance", instance, "--output", f"{name}:1-{kind}")
        for kind, instance in INSTANCES.items()
    }
    parts = [f"{name}:1-{kind}" for kind in INSTANCES]

    joined = told(packager, "join", *parts, "--output", f"{name}:1")

    assert joined["transfer"]["bytes_read"] == 0
    assert json.loads(inspected(f"docker://{name}:1", raw=True))["manifests"]
    client = docker.DockerClient(engine)
    for kind in INSTANCES:
        digest = joined["platforms"][f"linux/{kind}"]
        seen = json.loads(
            skopeo("--override-arch", kind, "inspect", "--tls-verify=false", f"docker://{name}:1")
        )
        assert seen["Architecture"] == kind
        image = client.images.pull(name, tag="1", platform=f"linux/{kind}")
        assert image.attrs["Architecture"] == kind
        client.images.remove(f"{name}:1", force=True)
        assert digest in json.dumps(built[kind])

"""A pod's command, probes and end for real, in a container with the manifest's own limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import docker
import pytest
import urllib3
import yaml

from tests.support.commandline import Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def test_a_pod_starts_answers_and_ends_within_its_manifest(
    packager: Packager, engine: str, image: str, tmp_path: Path
) -> None:
    """Give it a read-only root, no capabilities, the probe's budget and the grace."""
    words = ("--image", "r.example/team/model:1", "--instance", "ml.c7i.4xlarge")
    place = tmp_path / "manifests"
    tag = image.partition("@")[0]
    done = packager(
        *("deploy", "kubernetes", "render", f"docker:{tag}", *words, "--output", str(place))
    )
    assert done.status == 0, done.err
    spec = yaml.safe_load((place / "20-deployment.yaml").read_text())["spec"]["template"]["spec"]
    server = spec["containers"][0]
    probe = server["startupProbe"]
    client = docker.DockerClient(base_url=engine)
    container = client.containers.run(tag, detach=True, **limits(spec, server))
    try:
        answered(container, server, probe["failureThreshold"] * probe["periodSeconds"])
        left = spec["terminationGracePeriodSeconds"]
        left -= server["lifecycle"]["preStop"]["sleep"]["seconds"]
        began = time.monotonic()
        container.stop(timeout=left)
        assert time.monotonic() - began < left
        container.reload()
        state = container.attrs["State"]
        assert (state["ExitCode"], state["OOMKilled"]) in ((0, False), (143, False))
    finally:
        container.remove(force=True)


def limits(spec: dict[str, Any], server: dict[str, Any]) -> dict[str, Any]:
    """Return what a kubelet makes of a pod: its user, root, volumes and capabilities."""
    context = server["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert all("emptyDir" in one for one in volumes.values())
    scratch = {one["mountPath"]: "mode=0777,exec" for one in server["volumeMounts"]}
    given: dict[str, Any] = {}
    if "runAsUser" in spec["securityContext"]:
        own = spec["securityContext"]
        given["user"] = f"{own['runAsUser']}:{own['runAsGroup']}"
    return {
        **given,
        "read_only": context["readOnlyRootFilesystem"],
        "cap_drop": context["capabilities"]["drop"],
        "security_opt": ["no-new-privileges"],
        "tmpfs": scratch,
        "ports": {f"{server['ports'][0]['containerPort']}/tcp": ("127.0.0.1", None)},
    }


def answered(container: Any, server: dict[str, Any], budget_s: float) -> None:
    """Ask as the probe does, until it is answered."""
    path = server["startupProbe"]["httpGet"]["path"]
    until = time.monotonic() + budget_s
    http = urllib3.PoolManager(retries=False)
    while time.monotonic() < until:
        container.reload()
        assert container.status in ("created", "running"), container.logs().decode()
        found = next(iter(container.ports.values()), None)
        try:
            if (
                found
                and http.request(
                    "GET", f"http://127.0.0.1:{found[0]['HostPort']}{path}", timeout=2
                ).status
                == 200
            ):
                return
        except urllib3.exceptions.HTTPError:
            pass
        time.sleep(0.02)
    pytest.fail(container.logs().decode())

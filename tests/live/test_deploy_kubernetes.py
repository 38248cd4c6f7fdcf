"""A pod's command, probes and end for real, in a container with the manifest's own limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import pytest
import urllib3
import yaml

from tests.live.processors import caps
from tests.live.servers import SMALL_MODEL, run_inside
from tests.live.waiting import wait_until
from tests.support.commandline import Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.mark.capability("kubernetes")
def test_a_pod_starts_answers_and_ends_within_its_manifest(
    packager: Packager, engine: str, image: str, tmp_path: Path
) -> None:
    """Give it a read-only root, no capabilities, the probe's budget and the grace."""
    spec = rendered(packager, image.partition("@")[0], tmp_path)
    with pod(engine, image.partition("@")[0], spec) as (container, server):
        answered(container, server, "startupProbe")
        ends_in_time(container, spec, server)


def test_a_pod_of_a_real_engine_keeps_to_its_manifest(
    packager: Packager, docker_host: str, plain_image: str, tmp_path: Path
) -> None:
    """vLLM, as a user that is not root: caches, locks and sockets need no place but the mounted.

    A request that runs when the pod is told to end is answered.
    """
    own = {"DOCKER_HOST": docker_host}
    words = [f"--env={name}={value}" for name, value in {**SMALL_MODEL, **caps()}.items()]
    spec = rendered(packager, plain_image, tmp_path, *words, env=own)
    spec["securityContext"].setdefault("runAsUser", 10001)  # as the restricted standard wants
    spec["securityContext"].setdefault("runAsGroup", 10001)
    with pod(docker_host, plain_image, spec) as (container, server):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            answered(container, server, probe)
        assert run_inside(container, ["id", "-u"])[1] == b"10001\n"
        assert run_inside(container, ["touch", "/opt/packager/x"])[0] != 0
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(asked(container)))
        asking.start()
        time.sleep(0.5)
        ends_in_time(container, spec, server)
        asking.join()
        assert answers == [200]


def rendered(
    packager: Packager, tag: str, tmp_path: Path, *words: str, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the pod of an image's manifests."""
    place = tmp_path / "manifests"
    common = ("--image", "r.example/team/model:1", "--instance", "ml.c7i.4xlarge")
    packager(
        *("deploy", "kubernetes", "render", f"docker:{tag}", *common, *words),
        *("--output", str(place)),
        env=env,
        status=0,
    )
    found = yaml.safe_load((place / "20-deployment.yaml").read_text())
    return dict(found["spec"]["template"]["spec"])


@contextmanager
def pod(engine: str, tag: str, spec: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Run the container of a pod with what a kubelet gives it; yield it with its manifest."""
    server = spec["containers"][0]
    client = docker.DockerClient(base_url=engine)
    container = client.containers.run(tag, detach=True, **limits(spec, server))
    try:
        yield container, server
    finally:
        container.remove(force=True)


def ends_in_time(container: Any, spec: dict[str, Any], server: dict[str, Any]) -> None:
    """End it as a kubelet does, whose grace the wait before SIGTERM is in."""
    left = spec["terminationGracePeriodSeconds"]
    left -= server["lifecycle"]["preStop"]["sleep"]["seconds"]
    began = time.monotonic()
    container.stop(timeout=left)
    assert time.monotonic() - began < left
    container.reload()
    state = container.attrs["State"]
    assert (state["ExitCode"], state["OOMKilled"]) in ((0, False), (143, False))


def asked(container: Any) -> int:
    """Ask for a long answer; return the status."""
    found = next(iter(container.ports.values()))
    body = {"inputs": "Once", "parameters": {"max_new_tokens": 400, "ignore_eos": True}}
    url = f"http://127.0.0.1:{found[0]['HostPort']}/invocations"
    return urllib3.PoolManager(retries=False).request("POST", url, json=body, timeout=60).status


def limits(spec: dict[str, Any], server: dict[str, Any]) -> dict[str, Any]:
    """Return what a kubelet makes of a pod: its user, root, volumes and capabilities."""
    context = server["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert all("emptyDir" in one for one in volumes.values())
    scratch = {one["mountPath"]: "mode=0777,exec" for one in server["volumeMounts"]}
    assert context["allowPrivilegeEscalation"] is False
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
        "environment": {one["name"]: one["value"] for one in server.get("env", ())},
        "ports": {f"{server['ports'][0]['containerPort']}/tcp": ("127.0.0.1", None)},
    }


def answered(container: Any, server: dict[str, Any], probe: str) -> None:
    """Ask as a probe does, until it is answered."""
    path = server[probe]["httpGet"]["path"]
    budget_s = server[probe]["failureThreshold"] * server[probe]["periodSeconds"]
    http = urllib3.PoolManager(retries=False)

    def answers() -> bool:
        container.reload()
        assert container.status in ("created", "running"), container.logs().decode()
        with suppress(urllib3.exceptions.HTTPError, StopIteration):
            port = next(iter(container.ports.values()))[0]["HostPort"]
            return http.request("GET", f"http://127.0.0.1:{port}{path}", timeout=2).status == 200
        return False

    wait_until(answers, budget_s)

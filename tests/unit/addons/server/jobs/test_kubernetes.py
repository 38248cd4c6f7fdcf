"""A job as a Kubernetes Job: valid for three versions, its stages in order, its files in place."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from packager.addons.fleet.cluster import Cluster
from packager.addons.server.jobs import kubernetes
from packager.addons.server.jobs.kubernetes import PodSize, render_job
from packager.addons.server.jobs.values import BackgroundJob, JobLimits, Stage
from packager.core.errors import UsageError
from tests.support.cases import cases_of, read_tables, shows
from tests.support.job_values import NOON, new_job

cases = cases_of(__file__)

VERSIONS = ("1.31", "1.33", "1.37")
TRAIN = Stage(
    "train", ("draft", "train", "--output", "{job}/head"), {"OMP_NUM_THREADS": "$(nproc)$$"}
)
BUILD = Stage("build", ("build", "--request", "{job}/request.json", "--output", "s3://b/$(x)$$y"))
FILES = {"request.json": b'{"model": "s3://m"}', "data/texts.jsonl": b"\xff\x00"}


def job(**changes: Any) -> BackgroundJob:
    asked = new_job("Llama 3.1_AWQ", stages=(TRAIN, BUILD), **changes)
    return BackgroundJob(
        id="0123456789abcdef" * 2,
        asked=asked,
        status="queued",
        folder=Path("/state/jobs/1"),
        created=NOON,
        modified=NOON,
    )


def documents(
    given: BackgroundJob | None = None,
    files: dict[str, bytes] | None = None,
    size: PodSize | None = None,
    **changes: Any,
) -> list[dict[str, Any]]:
    cluster = Cluster(**{"image": "registry/packager:1", **changes})
    text = render_job(given or job(), FILES if files is None else files, cluster, size or PodSize())
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("version", VERSIONS)
@cases("the_manifests_are_valid_size")
def test_the_manifests_are_valid(version: str, size: PodSize, changes: dict[str, Any]) -> None:
    for given, files in ((job(limits=JobLimits(run_s=3600)), FILES), (job(), {})):
        for one in documents(given, files, size, **changes):
            kubernetes_validate.validate(one, version, strict=True)


def test_stages_limits_size_and_lasting_failures_are_those_of_the_job() -> None:
    size = PodSize(cpus=8, memory_bytes=2**36, gpus=2)

    _, manifest = documents(job(limits=JobLimits(run_s=3600)), size=size)

    assert shows(manifest["spec"], read_tables(__file__)["spec"]), manifest
    pod = manifest["spec"]["template"]["spec"]
    assert {"name": "OMP_NUM_THREADS", "value": "$$(nproc)$$$$"} in pod["initContainers"][0]["env"]
    assert "s3://b/$$(x)$$$$y" in pod["containers"][0]["args"]  # else it would be a variable


def test_a_job_of_one_stage_has_no_init_containers_and_no_empty_config_map() -> None:
    one = job()
    one = replace(one, asked=replace(one.asked, stages=(BUILD,)))

    [manifest] = documents(one, {})

    assert "initContainers" not in manifest["spec"]["template"]["spec"]


def test_files_are_where_the_commands_look_for_them() -> None:
    config_map, manifest = documents()
    pod = manifest["spec"]["template"]["spec"]

    [volume] = [one for one in pod["volumes"] if one["name"] == "files"]
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    for container in (*pod["initContainers"], *pod["containers"]):
        placed = {
            one["mountPath"]: base64.b64decode(config_map["binaryData"][one["subPath"]])
            for one in container["volumeMounts"]
            if one["name"] == "files"
        }
        assert placed == {
            "/var/lib/packager-job/request.json": b'{"model": "s3://m"}',
            "/var/lib/packager-job/data/texts.jsonl": b"\xff\x00",
        }


def test_names_are_those_that_kubernetes_takes() -> None:
    _, manifest = documents()

    assert manifest["metadata"]["name"] == "packager-llama-3-1-awq-012345"
    long = replace(job(), asked=replace(job().asked, name="x" * 200))
    assert len(documents(long)[1]["metadata"]["name"]) <= 52
    with pytest.raises(UsageError, match="is not a name that Kubernetes takes"):
        documents(namespace="Team_A")


def test_files_that_no_config_map_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "CONFIG_MAP_BYTES", 20)

    with pytest.raises(UsageError, match="the files of the job have 32 bytes, a ConfigMap holds"):
        documents()

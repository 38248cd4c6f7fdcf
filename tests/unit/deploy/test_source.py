"""Deployments out of records, of images with labels alone, and of strangers' images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from packager.build.records import parse_record
from packager.catalog.instances import find_instance
from packager.core.deployment import Deployment
from packager.core.instance import Instance
from packager.core.record import BuildRecord
from packager.deploy.servers import metrics_of
from packager.deploy.source import (
    NotDeployable,
    Subject,
    dns_label,
    instance_name,
    make_deployment,
)
from packager.errors import UsageError
from packager.images.stored import StoredImage
from tests.support.cases import cases
from tests.support.lineage_records import record as record_document
from tests.support.stored_images import BASE, SERVING, image, layer

RUNTIME = {
    "cuda": "13.0",
    "least_driver": "580",
    "inference_ami": "al2023-ami-sagemaker-inference-gpu-4-1",
    "drain_s": 25,
    "grace_s": 30,
    "health_path": "/ping",
    "start_period_s": 420,
}
G5 = find_instance("ml.g5.12xlarge")


def a_record(**changes: Any) -> BuildRecord:
    more = {
        "family": "vllm",
        "tp_degree": 2,
        "shape": {"max_batch": 64},
        "created": "1970-01-01T00:00:00Z",
        "transfer": {},
        "seconds": 1.0,
        "runtime": RUNTIME,
        **changes,
    }
    return parse_record(json.dumps(record_document(**more)).encode(), "record.json")


def labelled(found: Mapping[str, Any], **labels: str) -> StoredImage:
    """Return an image whose labels are packager's, with this record among them."""
    return image(record={"engine": "vllm 0.32.0", "shape": {"max_batch": 8}, **found})


def made(subject: Subject, instance: Instance = G5, **options: Any) -> Deployment:
    return make_deployment(subject, instance, **options)


def codes(found: Deployment) -> list[str]:
    return [one.code for one in found.findings]


def test_a_record_says_what_its_image_needs() -> None:
    found = made(Subject(reference="r.json", pulled="r.example/tiny:1", record=a_record()))

    assert (found.name, found.image, found.served_name) == ("tiny", "r.example/tiny:1", "tiny")
    assert (found.family, found.engine, found.engine_version) == ("vllm", "vllm", "0.32.0")
    assert (found.cuda, found.least_driver) == ("13.0", "580")
    assert (found.drain_s, found.grace_s, found.start_period_s) == (25, 30, 420)
    assert (found.max_batch, found.load_s) == (64, 420)
    assert (found.image_bytes, found.pull_s) == (None, None)  # its base's layers are not in it


def test_labels_alone_say_engine_batch_and_devices() -> None:
    split = {"split": "TP 2 x 2 copies (data parallel)", "tp_degree": 2}
    found = made(Subject(reference="oci:out", image=labelled(split)))

    assert (found.engine, found.engine_version, found.max_batch) == ("vllm", "0.32.0", 8)
    assert (found.devices, found.nodes) == (4, 1)
    assert found.digest == labelled(split).digest
    assert found.image_bytes == sum(one.size for one in SERVING)
    assert found.grace_s is None
    assert codes(found) == ["deploy-grace-unknown", "deploy-cuda-unknown"]


@pytest.mark.parametrize(*cases(__file__, "splits"))
def test_the_split_says_how_many_devices_each_node_gives(
    said: dict[str, Any], devices: int, nodes: int
) -> None:
    found = made(Subject(reference="oci:out", image=labelled(said)))

    assert (found.devices, found.nodes) == (devices, nodes)
    assert "deploy-devices-assumed" not in codes(found)


def test_what_nobody_says_of_devices_is_assumed_and_told() -> None:
    found = made(Subject(reference="r.json", record=a_record()))

    assert found.devices == 4
    assert "deploy-devices-assumed" in codes(found)


@pytest.mark.parametrize(("request_", "devices"), [({"dp_degree": 1}, 2), ({"pp_degree": 2}, 4)])
def test_a_record_that_was_asked_for_a_layout_says_it(
    request_: dict[str, int], devices: int
) -> None:
    asked = {"model": "./tiny", "instance": "ml.g5.12xlarge", **request_}
    found = made(Subject(reference="r.json", record=a_record(request=asked)))

    assert found.devices == devices
    assert "deploy-devices-assumed" not in codes(found)


def test_a_processor_needs_no_device() -> None:
    found = made(
        Subject(reference="oci:out", image=labelled({"tp_degree": 1})),
        find_instance("ml.c7i.4xlarge"),
    )

    assert (found.devices, found.nodes) == (0, 1)
    assert "deploy-cuda-unknown" not in codes(found)


@pytest.mark.parametrize(("version", "cuda"), [("13.0.1", "13.0"), ("12.4", "12.4"), ("x", "")])
def test_cuda_is_read_of_nvidias_variable(version: str, cuda: str) -> None:
    found = made(Subject(reference="oci:out", image=image(env={"CUDA_VERSION": version})))

    assert found.cuda == cuda
    assert ("deploy-cuda-unknown" in codes(found)) is (cuda == "")
    assert found.inference_ami.endswith({"13.0": "4-1", "12.4": "3-1", "": ""}[cuda])


def test_directories_that_are_written_to_hold_no_weights_and_no_other() -> None:
    env = {
        "HOME": "/home/packager",
        "HF_HOME": "/home/packager/.cache",
        "VLLM_CACHE_ROOT": "/opt/packager/model/cache",
        "TRITON_CACHE_DIR": "/var/triton/",
    }
    found = made(Subject(reference="oci:out", image=image(env=env)))

    assert found.writable == ("/home/packager", "/tmp", "/var/triton")


@pytest.mark.parametrize(
    "place", ["/", "/opt", "/opt/packager/model", "/opt/ml/model/x", "/dev/shm", "/a:b", "/a/../b"]
)
def test_no_empty_directory_hides_the_weights_or_is_refused(place: str) -> None:
    found = made(Subject(reference="oci:out", image=image(env={"HOME": place})))
    assert (found.writable, found.home) == (("/tmp",), "")


def test_a_home_of_the_image_is_written_to() -> None:
    found = made(Subject(reference="oci:out", image=image(env={"HOME": "/opt/model"})))
    assert (found.writable, found.home) == (("/opt/model", "/tmp"), "/opt/model")


def test_compiled_files_in_the_image_need_a_root_that_can_be_written() -> None:
    compiled = image((BASE, layer("compiled", "graphs")))

    assert not made(Subject(reference="oci:out", image=compiled)).read_only_root
    assert made(Subject(reference="oci:out", image=image())).read_only_root


TREE = {
    "target": "s3://models/tiny",
    "name": "s3://models/tiny",
    "digest": "sha256:" + "d4" * 32,
    "files": 3,
    "size": 1000,
    "image": "r.example/vllm:1",
    "env": {"SM_VLLM_MODEL": "/opt/ml/model"},
}


def test_a_tree_is_served_by_the_image_that_its_record_names() -> None:
    found = made(Subject(reference="r.json", record=a_record(images=[], trees=[TREE])))

    assert (found.image, found.digest) == ("r.example/vllm:1", "")
    assert (found.weights.kind, found.weights.uri) == ("mounted", "s3://models/tiny/")
    assert found.env == {"SM_VLLM_MODEL": "/opt/ml/model"}
    assert found.model_bytes == 1000


def test_an_image_without_weights_takes_those_that_are_named() -> None:
    asked = {"model": "./tiny", "instance": "ml.g5.12xlarge", "weights": "mounted"}
    subject = Subject(reference="r.json", record=a_record(request=asked))

    assert made(subject).weights.uri == ""
    assert made(subject, weights_uri="s3://b/tree").weights.uri == "s3://b/tree/"
    with pytest.raises(UsageError, match="not a place in a bucket"):
        made(subject, weights_uri="/tmp/tree")


def test_a_measured_speed_takes_the_place_of_the_assumed_one() -> None:
    subject = Subject(reference="oci:out", image=image())

    slow, fast = made(subject), made(subject, bytes_s=1e9)

    assert slow.image_bytes is not None
    assert slow.pull_s == pytest.approx(slow.image_bytes / 30_583_467)
    assert fast.pull_s == slow.image_bytes / 1e9


def test_a_strangers_image_does_not_say_its_instance() -> None:
    with pytest.raises(NotDeployable, match="which instance"):
        instance_name(Subject(reference="r.example/x:1", image=image()))
    assert instance_name(Subject(reference="r.json", record=a_record())) == "ml.g5.xlarge"


@pytest.mark.parametrize(*cases(__file__, "hostile"))
def test_labels_of_a_stranger_count_only_where_they_are_as_ours(hostile: dict[str, Any]) -> None:
    found = made(Subject(reference="oci:out", image=image(record=hostile)))

    assert found.max_batch is None
    assert found.weights.kind == "baked"
    assert found.devices >= 1


@pytest.mark.parametrize(*cases(__file__, "labels"))
def test_a_name_is_a_dns_label(text: str, label: str) -> None:
    assert dns_label(text) == label
    assert dns_label(label) == label


def test_names_in_other_letters_are_deployments_of_their_own() -> None:
    names = ("模型-7b", "型模-7b", "модель-7b", "7b", "模型", "модель")
    labels = {dns_label(name) for name in names}
    assert len(labels) == len(names)


def test_times_and_paths_of_a_hostile_record_are_not_believed() -> None:
    path = "/ping HTTP/1.1\r\nX: y"
    times = {"drain_s": -5, "grace_s": -30, "start_period_s": 10**12, "health_path": path}
    hostile = a_record(runtime={**RUNTIME, **times})
    found = made(Subject(reference="record.json", record=hostile))

    assert (found.drain_s, found.grace_s) == (None, None)
    assert found.health_path == "/ping"
    assert found.start_period_s != 10**12


def test_two_long_names_are_two_deployments() -> None:
    model = "an-organization-with-a-name/" + "model-" * 8
    assert dns_label(f"{model}instruct-awq") != dns_label(f"{model}instruct-gptq")
    assert len(dns_label("7" * 300)) <= 52


@pytest.mark.parametrize(*cases(__file__, "gauges"))
def test_the_queue_is_the_engines_gauge(
    family: str, engine: str, arguments: list[str], queue: str
) -> None:
    assert metrics_of(family, engine, tuple(arguments)).queue == queue

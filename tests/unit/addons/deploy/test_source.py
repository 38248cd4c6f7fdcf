"""Deployments out of records, of images with labels alone, and of strangers' images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import pytest

from packager.addons.deploy.servers import metrics_of
from packager.addons.deploy.source import (
    Subject,
    dns_label,
    instance_name,
    make_deployment,
)
from packager.catalog.instances import find_instance
from packager.core.deployment import Deployment
from packager.core.errors import UsageError
from packager.core.instance import Instance
from packager.core.record import BuildRecord
from packager.images.stored import StoredImage
from packager.pipeline.records import parse_record
from tests.support.cases import cases, read_tables
from tests.support.lineage_records import record as record_document
from tests.support.refusals import raises_code
from tests.support.stored_images import BASE, SERVING, image, layer

G5 = find_instance("ml.g5.12xlarge")


def a_record(**changes: Any) -> BuildRecord:
    more = {**read_tables(__file__)["record"], **changes}
    return parse_record(json.dumps(record_document(**more)).encode(), "record.json")


def labelled(found: Mapping[str, Any], **labels: str) -> StoredImage:
    """Return an image whose labels are packager's, with this record among them."""
    return image(record={"engine": "vllm 0.32.0", "shape": {"max_batch": 8}, **found})


def made(subject: Subject, instance: Instance = G5, **options: Any) -> Deployment:
    return make_deployment(subject, instance, **options)


def codes(found: Deployment) -> list[str]:
    return [one.code for one in found.findings]


@cases("deployments")
def test_a_deployment_is_what_is_known_of_its_image(case: dict[str, Any]) -> None:
    record = a_record(**case["record"]) if "record" in case else None
    stored = labelled(case["labels"]) if "labels" in case else image(**case.get("image", {}))
    subject = Subject(
        reference="r.json",
        pulled="r.example/tiny:1",
        record=record,
        image=None if record else stored,
    )

    found = made(subject, find_instance(case.get("instance", "ml.g5.12xlarge")))

    for name, value in case.get("shows", {}).items():
        got = attrgetter(name)(found)
        assert (list(got) if isinstance(got, tuple) else got) == value, name
    assert not [name for name in case.get("unknown", ()) if getattr(found, name) is not None]
    assert {*case.get("codes", ())} <= {*codes(found)}
    assert not {*case.get("lacks", ())} & {*codes(found)}


def test_labels_alone_say_engine_batch_and_devices() -> None:
    split = {"split": "TP 2 x 2 copies (data parallel)", "tp_degree": 2}
    found = made(Subject(reference="oci:out", image=labelled(split)))

    assert (found.engine, found.engine_version, found.max_batch) == ("vllm", "0.32.0", 8)
    assert (found.devices, found.nodes) == (4, 1)
    assert found.digest == labelled(split).digest
    assert found.image_bytes == sum(one.size for one in SERVING)
    assert found.grace_s is None
    assert codes(found) == ["deploy-grace-unknown", "deploy-cuda-unknown"]


def test_compiled_files_in_the_image_need_a_root_that_can_be_written() -> None:
    compiled = image((BASE, layer("compiled", "graphs")))

    assert not made(Subject(reference="oci:out", image=compiled)).read_only_root
    assert made(Subject(reference="oci:out", image=image())).read_only_root


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
    with raises_code("NotDeployable", match="which instance"):
        instance_name(Subject(reference="r.example/x:1", image=image()))
    assert instance_name(Subject(reference="r.json", record=a_record())) == "ml.g5.xlarge"


@cases("labels")
def test_a_name_is_a_dns_label(text: str, label: str) -> None:
    assert dns_label(text) == label
    assert dns_label(label) == label


def test_names_in_other_letters_are_deployments_of_their_own() -> None:
    names = ("模型-7b", "型模-7b", "модель-7b", "7b", "模型", "модель")
    assert len({dns_label(name) for name in names}) == len(names)


def test_two_long_names_are_two_deployments() -> None:
    model = "an-organization-with-a-name/" + "model-" * 8
    assert dns_label(f"{model}instruct-awq") != dns_label(f"{model}instruct-gptq")
    assert len(dns_label("7" * 300)) <= 52


@cases("gauges")
def test_the_queue_is_the_engines_gauge(
    family: str, engine: str, arguments: list[str], queue: str
) -> None:
    assert metrics_of(family, engine, tuple(arguments)).queue == queue

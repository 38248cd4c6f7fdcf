"""What is measured: images with what their labels say, addresses without what is secret."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packager.addons.bench.targets import BenchTarget, find_targets, setup_of_labels
from packager.core.bench_setup import BenchSetup
from packager.core.errors import UsageError
from tests.support.cases import cases, read_tables

TOLD = read_tables(__file__)["record"]
LABELS = {
    "org.opencontainers.image.title": "llama",
    "dev.packager.instance": "ml.g5.12xlarge",
    "dev.packager.record": json.dumps(TOLD),
}


def engine(labels: dict[str, str]) -> Any:
    """Return an engine with one image, which it finds by any name."""
    config = {"Labels": labels, "Entrypoint": ["/opt/packager/serving/launch.py"], "Env": []}
    attrs = {"Config": config, "RepoDigests": ["llama@sha256:" + "d" * 64]}
    image = SimpleNamespace(id="sha256:" + "1" * 64, attrs=attrs)
    return SimpleNamespace(images=SimpleNamespace(get=lambda name: image))


def found(
    *names: str, place: Path, labels: dict[str, str] = LABELS, **changes: Any
) -> tuple[BenchTarget, ...]:
    given: dict[str, Any] = {"needs_gpus": lambda instance: instance.startswith("ml.g"), **changes}
    return find_targets(names, {"A": "1"}, connect=lambda: engine(labels), state_dir=place, **given)


def test_an_image_of_ours_says_what_it_is(tmp_path: Path) -> None:
    (target,) = found("docker:llama:awq", place=tmp_path)

    assert target.name == "llama:awq"
    assert target.setup == BenchSetup(**read_tables(__file__)["setup"], digest="sha256:" + "d" * 64)
    assert (target.server.env, target.server.gpus, target.record) == ({"A": "1"}, True, None)


def test_an_image_of_others_says_nothing_but_its_digest(tmp_path: Path) -> None:
    (target,) = found("vllm:0.9", place=tmp_path, labels={})

    assert target.setup == BenchSetup(digest="sha256:" + "d" * 64)
    assert not target.server.gpus


@cases("labels_of_another_form_say_nothing")
def test_labels_of_another_form_say_nothing(label: str) -> None:
    setup = setup_of_labels({"dev.packager.record": label, "dev.packager.instance": 5})

    assert setup.tp_degree is None
    assert (setup.model, setup.instance, setup.engine) == ("", "", "")


def test_an_address_is_named_without_its_password(tmp_path: Path) -> None:
    (target,) = found("http://user:secret@host:8000/v1", place=tmp_path)

    assert target.name == "http://host:8000"
    assert target.server.is_address
    assert target.server.env == {}


def test_an_image_is_measured_without_its_draft_too(tmp_path: Path) -> None:
    first, second = found("llama:1", place=tmp_path, drafts_off=True)

    assert second.name == "llama:1 without its draft"
    assert (first.setup.draft, second.setup.draft) == ("eagle3", "none")
    assert second.server.name == "llama:1"
    assert second.server.env == {"A": "1", "PACKAGER_SPECULATION": "off"}


def test_an_image_without_a_draft_is_measured_once(tmp_path: Path) -> None:
    labels = {**LABELS, "dev.packager.record": json.dumps({**TOLD, "draft": None})}

    assert len(found("llama:1", place=tmp_path, labels=labels, drafts_off=True)) == 1


@cases("refused")
def test_the_unmeasurable_is_refused(tmp_path: Path, names: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        found(*names, place=tmp_path)

    assert told in refused.value.message
    assert refused.value.hint

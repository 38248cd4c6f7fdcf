"""Images of an engine that packager built, told by their labels."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from packager.cli.run.images import find_packaged
from packager.core.errors import NotFound, UsageError
from tests.support.cases import cases

DIGEST = "sha256:" + "1" * 64
LABELS = {
    "org.opencontainers.image.title": "tiny-llama",
    "dev.packager.instance": "local",
    "dev.packager.family": "vllm",
    "dev.packager.record": json.dumps({"request": {"weights": "baked"}}),
}


def engine_with(name: str, labels: dict[str, str] | None, *digests: str) -> Any:
    """An engine with one image, found by one name."""
    image = SimpleNamespace(
        id="sha256:" + "2" * 64, attrs={"Config": {"Labels": labels}, "RepoDigests": list(digests)}
    )

    def get(asked: str) -> Any:
        if asked != name:
            raise ImageNotFound("no such image")
        return image

    return SimpleNamespace(images=SimpleNamespace(get=get))


def test_an_image_says_what_it_serves(tmp_path: Path) -> None:
    found = find_packaged(engine_with("tiny:1", LABELS), "docker:tiny:1", tmp_path)

    assert (found.name, found.model) == ("tiny:1", "tiny-llama")
    assert (found.instance, found.grace_s) == ("local", 30)


def test_what_build_prints_is_found_by_the_digest_of_its_name(tmp_path: Path) -> None:
    engine = engine_with("tiny:1", LABELS, f"127.0.0.1:5000/x@{DIGEST}")

    assert find_packaged(engine, f"docker:tiny:1@{DIGEST}", tmp_path).name == "tiny:1"


def test_another_image_of_the_name_is_not_run_for_the_digest(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=f"does not know 'tiny:1' as {DIGEST}"):
        find_packaged(engine_with("tiny:1", LABELS), f"tiny:1@{DIGEST}", tmp_path)


@cases("refused")
def test_what_cannot_run_is_refused(
    labels: dict[str, str] | None, record: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        ours = {**LABELS, "dev.packager.record": record} if record else labels
        find_packaged(engine_with("tiny:1", ours), "docker:tiny:1", tmp_path)


@pytest.mark.parametrize("record", ["", "[]", "{", '{"request": 3}'])
def test_a_label_that_cannot_be_read_says_nothing(record: str, tmp_path: Path) -> None:
    labels = {**LABELS, "dev.packager.record": record}

    assert find_packaged(engine_with("tiny:1", labels), "docker:tiny:1", tmp_path).grace_s == 30


def test_a_layout_is_loaded_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_packaged(None, "oci:out/tiny", tmp_path)

    assert "`packager copy oci:out/tiny docker:tiny:latest`" in caught.value.hint

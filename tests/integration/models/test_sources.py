"""What every source of models promises: one model, wherever it lies, and one word on a bad one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from packager.cli.plugins.tables import SOURCES
from packager.core.errors import ModelRefused
from packager.core.model import ModelFiles
from packager.models.reference import parse_model_reference
from packager.models.s3 import S3Source
from tests.support.buckets import server as server
from tests.support.cases import cases_of
from tests.support.changed_models import Change
from tests.support.doubles.s3 import Bucket
from tests.support.model_places import Place
from tests.support.model_places import place as place
from tests.unit.models import test_local

Read = Callable[..., ModelFiles]  # publishes the directory as it is then

damaged = cases_of(test_local.__file__, "damaged")


@pytest.fixture(params=[name for name in SOURCES if not SOURCES.is_outside(name)])
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def read(
    request: pytest.FixtureRequest, source: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> Read:
    """Read the directory through a source, as a whole or for a plan."""
    if source == "s3":
        bucket = Bucket(request.getfixturevalue("server"))
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)

    def from_source(*, headers_only: bool = False) -> ModelFiles:
        if source == "local":
            return place.local()
        if source == "s3":
            bucket.upload(place.model, "llama")
            reference = parse_model_reference(f"{bucket.url}/llama")
            return S3Source(headers_only=headers_only).facts(reference)
        place.publish()
        read: Read = place.facts if source == "hub" else place.stream
        return read(headers_only=headers_only)

    return from_source


@pytest.mark.capability("sources")
@pytest.mark.parametrize("headers_only", [False, True], ids=["whole", "headers"])
def test_a_model_is_the_same_wherever_it_lies(
    read: Read, place: Place, *, headers_only: bool
) -> None:
    found, local = read(headers_only=headers_only), place.local()

    assert (found.config, found.tensors) == (local.config, local.tensors)
    assert [(file.path, file.role, file.size) for file in found.files] == [
        (file.path, file.role, file.size) for file in local.files
    ]


def test_what_is_left_out_is_explained_everywhere(read: Read, place: Place) -> None:
    (place.model / "modeling.py").write_text("import os")
    (place.model / "pytorch_model.bin").write_bytes(b"x" * 99)

    assert dict(read().left_out) == {
        "modeling.py": "code is not packaged",
        "pytorch_model.bin": "pickle: can run code when it is loaded",
    }


def is_anywhere(row: dict[str, Any]) -> bool:
    """Whether a hub and a bucket can have what a disk has."""
    return not {"link", "pipe", "socket"} & row["change"].keys()


@damaged("damaged", hint="", only=is_anywhere)
@pytest.mark.extended
def test_damage_is_refused(read: Read, place: Place, change: Change, said: str, hint: str) -> None:
    change.apply(place.model)

    with pytest.raises(ModelRefused, match=said) as caught:
        read()
    assert hint in caught.value.hint

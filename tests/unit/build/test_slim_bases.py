"""A build on a slim base is refused for a machine whose kernels went."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.build.resolve import resolve
from packager.catalog.containers import find_container
from packager.core.image import BaseImage, Platform
from packager.core.instance import Instance
from packager.core.request import BuildRequest
from packager.errors import UsageError
from packager.images.slim.label import LABEL
from packager.models.reference import parse_model_reference
from tests.support.doubles.containers import with_traits
from tests.support.headers import LOCAL_CPU, TINY, model_of

LABELLED = json.dumps({"schema": 1, "kinds": ["cpu"], "isa": ["avx512f"]})


def resolved(instance: Instance) -> Any:
    base = BaseImage(
        reference="oci:slim",
        digest="sha256:" + "1" * 64,
        platform=Platform(),
        layers=(),
        config={"config": {"Labels": {LABEL: LABELLED}}},
    )
    return resolve(
        BuildRequest(model="m", instance=instance.name, base="oci:slim"),
        parse_model_reference("./m"),
        parse_model_reference=parse_model_reference,
        find_model=lambda _: model_of(TINY),
        find_instance=lambda _: instance,
        find_container=lambda *_: with_traits(find_container(None, instance.kind)),
        find_base=lambda *_: base,
        find_draft=lambda _: model_of(TINY),
    )


def test_the_machine_that_it_was_made_for_is_taken() -> None:
    assert resolved(replace(LOCAL_CPU, isa=("avx2", "avx512f"))).base.reference == "oci:slim"


@pytest.mark.parametrize(
    ("instance", "why"),
    [
        (replace(LOCAL_CPU, isa=("avx2",)), "known to have avx512f"),
        (replace(LOCAL_CPU, kind="nvidia", compute_capability=8.6), "it is for cpu"),
    ],
)
def test_another_machine_is_refused_before_a_model_is_read(instance: Instance, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        resolved(instance)

    assert "packager base slim --instance" in refused.value.hint

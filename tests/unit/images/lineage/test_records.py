"""What a build record says of where an image came from."""

from __future__ import annotations

from typing import Any

import pytest

from packager.core.documents import NotStrict
from packager.images.lineage.records import record_fragment
from tests.support.cases import cases
from tests.support.lineage_records import IMAGE, KEY, record


def edges(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in record_fragment(document).edges}


def test_a_quantized_image_comes_from_its_artifact_and_that_from_data() -> None:
    assert edges(record()) == {
        (f"data:name:chats.jsonl:{KEY}", f"step:{KEY}"),
        (f"step:{KEY}", f"artifact:{KEY}"),
        (f"artifact:{KEY}", f"image:{IMAGE}"),
    }


def test_a_model_of_a_hub_is_known_by_its_revision() -> None:
    model = {"source": "hub", "name": "org/m", "revision": "0123456789abcdef"}

    found = edges(record(model=model, steps=[]))

    assert found == {("model:hub:org/m@0123456789abcdef", f"image:{IMAGE}")}


def test_two_directories_of_one_name_are_two_models() -> None:
    other = [{"role": "weights", "digest": "sha256:" + "d4" * 32, "size": 1}]

    (one,), (two,) = edges(record(steps=[])), edges(record(steps=[], layers=other))

    assert one[0].startswith("model:layers:")
    assert one[0] != two[0]


def test_a_step_without_a_key_reads_a_model_that_nobody_recorded() -> None:
    steps = [{"name": "quantize", "tool": "llmcompressor", "key": ""}]

    nodes = record_fragment(record(steps=steps)).nodes

    (unknown,) = (node for node in nodes if not node.known)
    assert (unknown.kind, unknown.label) == ("model", "tiny: contents unknown")


def test_a_step_that_only_measured_made_nothing() -> None:
    measuring = {"name": "evaluate", "tool": "evaluate", "key": "7e" * 32}
    plain = record()

    found = edges(record(steps=[*plain["steps"], measuring]))

    assert found == edges(plain) | {(f"artifact:{KEY}", f"step:{'7e' * 32}")}
    asked = record(request={"quantize": "awq"})
    (label,) = (one.label for one in record_fragment(asked).nodes if one.kind == "artifact")
    assert label == "tiny, quantized: awq"


def test_an_image_that_was_only_measured_comes_from_its_checkpoint() -> None:
    measuring = {"name": "evaluate", "tool": "evaluate", "key": KEY}
    quality = {"quality": {"kld_mean": 0.1}}

    found = edges(record(steps=[measuring], quality=quality))

    (model,) = (source for source, target in edges(record(steps=[])) if target.startswith("image:"))
    assert {(model, f"step:{KEY}"), (model, f"image:{IMAGE}")} <= found
    assert (f"image:{IMAGE}", f"evaluation:{IMAGE}") in found
    assert not any(source.startswith("artifact:") for source, _ in found)


def test_steps_follow_each_other() -> None:
    steps = [
        {"name": "quantize", "tool": "llmcompressor", "key": KEY},
        {"name": "compile", "tool": "vllm", "key": "7e" * 32},
    ]

    found = edges(record(steps=steps, request={}))

    assert (f"artifact:{KEY}", f"step:{'7e' * 32}") in found
    assert (f"artifact:{'7e' * 32}", f"image:{IMAGE}") in found
    assert (f"artifact:{KEY}", f"image:{IMAGE}") not in found


def test_base_draft_and_measurements_are_part_of_it() -> None:
    document = record(
        steps=[],
        base={"reference": "registry.example/vllm:1", "digest": "sha256:" + "e5" * 32},
        draft={"kind": "eagle3", "source": "hub", "name": "org/head", "revision": "abc"},
        bench={"measured": "2026-11-01T10:00:00Z", "workload": {"name": "chat"}},
        quality={"quality": {"kld_mean": 0.01}},
    )

    found = edges(document)

    assert ("base:sha256:" + "e5" * 32, f"image:{IMAGE}") in found
    assert ("draft:hub:org/head@abc", f"image:{IMAGE}") in found
    assert (f"image:{IMAGE}", f"benchmark:{IMAGE}/2026-11-01T10:00:00Z") in found
    assert (f"image:{IMAGE}", f"evaluation:{IMAGE}") in found


@cases("what_is_no_record_is_refused")
def test_what_is_no_record_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(NotStrict):
        record_fragment(document)


@cases("types")
def test_fields_of_other_types_are_as_good_as_missing(changes: dict[str, Any]) -> None:
    assert f"image:{IMAGE}" in {node.id for node in record_fragment(record(**changes)).nodes}


def test_a_claim_is_marked_on_every_node() -> None:
    assert all(node.claimed for node in record_fragment(record(), claimed=True).nodes)

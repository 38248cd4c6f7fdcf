"""What an entry of the artifact cache says of where a result came from."""

from __future__ import annotations

from typing import Any

from artifact_cache.entry import Entry, Output, Writer
from artifact_cache.key import key_of_plain
from packager.images.lineage.entries import entry_fragment
from packager.images.lineage.graph import Fragment
from packager.images.lineage.index import LineageDocument, LineageIndex
from tests.support.cases import read_tables

TABLES = read_tables(__file__)

DATA, TEACHER, STUDENT, HEAD = "d" * 64, "a" * 64, "b" * 64, "c" * 64


def entry(kind: str, files: dict[str, str], made: dict[str, str], **more: Any) -> Entry:
    keydoc = {"kind": kind, "weights": {"files": files, **more.pop("weights", {})}, **more}
    return Entry(
        key=key_of_plain(keydoc),
        keydoc=keydoc,
        outputs=tuple(
            Output(path=path, sha256=digest, size=1_000_000, mode="0644")
            for path, digest in made.items()
        ),
        writer=Writer(nonce="0" * 32, builder_id="", version="0.2.0"),
        built_at=0,
        build_s=12.5,
        labels={"model": "tiny"},
    )


QUANTIZED = entry(
    "quantized-checkpoint",
    {"model.safetensors": TEACHER, "tokenizer.json": "e" * 64},
    {"model.safetensors": STUDENT},
    calibration={"dataset": DATA, "samples": 256},
    toolchain=TABLES["toolchain"],
)


def graph_of(*entries: Entry, subject: str) -> dict[str, str]:
    index = LineageIndex(None)

    def reading(one: Entry) -> LineageDocument:
        return LineageDocument(place=one.key, stamp="", read=lambda: entry_fragment(one))

    index.update(map(reading, entries))
    return {node.id: node.label for node in index.graph([subject]).nodes.values()}


def edges(fragment: Fragment) -> set[tuple[str, str]]:
    return {
        (edge.source.partition(":")[0], edge.target.partition(":")[0]) for edge in fragment.edges
    }


def test_a_result_comes_from_data_and_a_model_by_their_digests() -> None:
    found = entry_fragment(QUANTIZED)

    assert edges(found) == {("data", "step"), ("model", "step"), ("step", "artifact")}
    assert {node.kind: node.label for node in found.nodes} == TABLES["labels"]


def test_the_model_of_a_step_is_the_artifact_of_the_step_before() -> None:
    later = entry("engine-cache", {"model.safetensors": STUDENT}, {"cache.tar": "f" * 64})

    found = graph_of(QUANTIZED, later, subject=f"artifact:{later.key}")

    assert f"artifact:{QUANTIZED.key}" in found
    assert f"data:{DATA}" in found


def test_the_draft_of_a_step_is_the_head_that_was_trained() -> None:
    trained = entry(
        "draft-head",
        {"model.safetensors": TEACHER},
        {"model.safetensors": HEAD},
        calibration={"dataset": DATA, "samples": 12},
    )
    later = entry(
        "engine-cache",
        {"model.safetensors": STUDENT},
        {"cache.tar": "f" * 64},
        weights={"draft": {"model.safetensors": HEAD}},
    )

    assert f"data:{DATA}" in graph_of(trained, later, subject=f"artifact:{later.key}")


def test_a_model_is_known_by_its_weights_whatever_else_lies_beside_them() -> None:
    renamed = entry(
        "quantized-checkpoint",
        {"pytorch.safetensors": TEACHER, "README.md": "9" * 64},
        {"model.safetensors": HEAD},
    )

    found = graph_of(QUANTIZED, renamed, subject=f"artifact:{renamed.key}")
    (model,) = (one for one in found if one.startswith("model:"))

    assert model in graph_of(QUANTIZED, renamed, subject=f"artifact:{QUANTIZED.key}")


def test_a_key_document_of_another_kind_says_what_it_can() -> None:
    odd = entry("something-new", {}, {"out": "f" * 64}, calibration="all", toolchain=[])

    (model,) = (node for node in entry_fragment(odd).nodes if node.kind == "model")

    assert (model.known, model.label) == (False, "tiny: read without weights")

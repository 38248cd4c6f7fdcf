"""What a node that has one image lacks of another."""

from __future__ import annotations

from dataclasses import replace

from packager.core.image import Layer
from packager.images.compare import compare
from tests.support.cases import cases
from tests.support.stored_images import BASE, RECORD, SERVING, SHARDS, image, layer


def named(name: str, content: str) -> Layer:
    return replace(layer("weights", content), created_by=f"packager: weights {name} (9 B)")


def states(a: object, b: object) -> list[tuple[str, str]]:
    found = compare(a, b)  # type: ignore[arg-type]
    return [(entry.layer.role, entry.state) for entry in found.layers]


def test_only_the_layer_that_changed_is_pulled() -> None:
    settings = layer("config", "other settings")

    found = compare(image(), image((*SERVING[:-1], settings)))

    assert [entry.state for entry in found.layers] == ["shared"] * 5 + ["new"]
    assert found.size("new") == settings.size == len("other settings")
    assert [gone.descriptor.digest for gone in found.gone] == [SERVING[-1].digest]


def test_layers_above_another_base_are_there_and_must_be_unpacked_anew() -> None:
    other = layer("base", "ubuntu")

    found = states(image((BASE, *SHARDS)), image((other, *SHARDS)))

    assert found == [("base", "new"), ("weights", "moved"), ("weights", "moved")]


def test_a_layer_that_comes_twice_is_pulled_once() -> None:
    twice = layer("weights", "twice")

    assert compare(image(), image((BASE, twice, twice))).size("new") == len("twice")


@cases("causes", role="weights", name="", like=False)
def test_what_is_pulled_has_a_cause(
    role: str, content: str, name: str, like: bool, cause: str
) -> None:
    """A layer has another `name` than its content gives, or unpacks to the first shard."""
    other = named(name, content) if name else layer(role, content)
    if like:
        other = replace(other, diff_id=SHARDS[0].diff_id)

    found = compare(image((BASE, SHARDS[0], SHARDS[1])), image((BASE, other, SHARDS[1])))

    assert [entry.state for entry in found.layers] == ["shared", "new", "moved"]
    assert [entry.cause for entry in found.layers][:2] == ["", cause]
    assert found.layers[2].cause.startswith("it lies above ")


def test_environment_and_record_are_compared_entry_by_entry() -> None:
    a = image(env={"SAME": "1", "TP": "1", "OLD": "x"})
    b = image(env={"SAME": "1", "TP": "8", "NEW": "y"}, record={**RECORD, "precision": "fp8"})

    assert [(found.what, found.before, found.after) for found in compare(a, b).changes] == [
        ("env TP", "1", "8"),
        ("env OLD", "x", None),
        ("env NEW", None, "y"),
        ("record precision", "bf16", "fp8"),
    ]


def test_an_image_is_the_same_as_itself() -> None:
    found = compare(image(), image())

    assert (found.same, found.size("new"), found.changes) == (True, 0, ())

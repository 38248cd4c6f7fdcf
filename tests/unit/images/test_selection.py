"""Layers of an image, chosen by what they are for."""

from __future__ import annotations

import pytest

from packager.core.errors import UsageError
from packager.images.selection import LayerChoice, choose_layers
from tests.support.cases import cases
from tests.support.stored_images import BASE, SHARDS, image


@cases("layers_keep_their_order")
def test_layers_keep_their_order(choice: LayerChoice, roles: list[str]) -> None:
    assert [layer.role for layer in choose_layers(image(), choice)] == roles


def test_a_layer_that_is_there_twice_is_seen_where_it_is_last() -> None:
    shard, other = SHARDS

    found = choose_layers(image((shard, other, shard)), "weights")

    assert [layer.descriptor.digest for layer in found] == [other.digest, shard.digest]


def test_an_image_of_others_has_layers_of_all_alone() -> None:
    with pytest.raises(UsageError, match="--layers own: what packager added to the base"):
        choose_layers(image((BASE,)), "own")

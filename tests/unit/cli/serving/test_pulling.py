"""Times of a pull, from the events of a Docker Engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packager.cli.serving.pulling import Pulled, time_pull
from packager.images.target import names_registry
from tests.support.cases import cases
from tests.support.refusals import raises_code

LAYER, OTHER = "aaa", "bbb"


class Clock:
    """The time of the event that is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def events(clock: Clock, *told: tuple[float, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for when, event in told:
        clock.now = when
        yield event


def downloading(layer: str, total: int) -> dict[str, Any]:
    detail = {"current": 1, "total": total}
    return {"status": "Downloading", "id": layer, "progressDetail": detail}


def said(status: str, layer: str) -> dict[str, Any]:
    return {"status": status, "id": layer, "progressDetail": {}}


def test_unpacking_is_what_follows_the_last_byte() -> None:
    clock = Clock()
    told = events(
        clock,
        (0.5, {"status": "Pulling from model", "id": "1"}),
        (1.0, said("Already exists", OTHER)),
        (2.0, downloading(LAYER, 4_000)),
        (3.0, downloading("ccc", 6_000)),
        (4.0, said("Download complete", "ccc")),
        (5.0, said("Extracting", "ccc")),
        (7.0, said("Download complete", LAYER)),
        (9.0, said("Extracting", LAYER)),
        (12.0, said("Pull complete", LAYER)),
        (12.5, {"status": "Status: Downloaded newer image"}),
    )

    assert time_pull("r/m:1", told, clock) == Pulled(
        down_s=7.0, unpack_s=5.5, bytes=10_000, known_layers=1
    )


def test_a_pull_that_the_engine_gives_up_is_an_error() -> None:
    clock = Clock()
    told = events(clock, (1.0, downloading(LAYER, 4)), (2.0, {"error": "unexpected EOF"}))

    with raises_code("NotPulled", match="cannot pull 'r/m:1': unexpected EOF"):
        time_pull("r/m:1", told, clock)


@cases("only_a_name_with_a_registry_can_be_pulled_anew")
def test_only_a_name_with_a_registry_can_be_pulled_anew(name: str, expected: bool) -> None:
    assert names_registry(name) is expected

"""Which container gets a request."""

from __future__ import annotations

from packager.addons.server.endpoints.traffic import Pool, TrafficServer, pick_variant
from tests.support.cases import cases
from tests.support.known import known


def pool(weight: float, *names: str) -> Pool:
    return Pool(weight, [TrafficServer(name, f"http://{name}", "v") for name in names])


@cases("variants_share_requests_by_their_weights")
def test_variants_share_requests_by_their_weights(draw: float, variant: str) -> None:
    assert pick_variant({"one": pool(3, "a"), "two": pool(1, "b")}, lambda: draw) == variant


def test_a_variant_without_weight_gets_no_request() -> None:
    pools = {"one": pool(0, "a"), "two": pool(1, "b"), "three": pool(0, "c")}

    assert pick_variant(pools, lambda: 0.0) == "two"
    assert pick_variant(pools, lambda: 0.9999999) == "two"
    assert pick_variant({"one": pool(0, "a")}) is None


def test_the_container_with_the_fewest_requests_is_picked() -> None:
    pair = pool(1, "a", "b")
    first = known(pair.pick())

    with first.leased():
        second = pair.pick()

    assert second is not None
    assert (first.container, second.container) == ("a", "b")


def test_a_container_that_is_not_ready_is_passed_over() -> None:
    pair = pool(1, "a", "b")
    pair.servers[0].is_ready = False

    picked = known(pair.pick())

    assert picked.container == "b"
    pair.servers[1].is_ready = False
    assert pair.pick() is None

"""A base that comes from another registry, over a line that breaks: no wrong byte goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from packager.core.image import ImageSpec
from tests.faults.counters import never
from tests.faults.pushing import LARGEST, LAYERS, REPOSITORY, Bench, base_at, bench, image
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.doubles.registry import FakeRegistry, sha256

pytestmark = pytest.mark.usefixtures("patience")

BLOB = f"/blobs/{sha256(LAYERS[0])}"


@dataclass
class Mirror:
    """A registry that has a base, and the line to it."""

    registry: FakeRegistry
    proxy: FaultProxy

    def image(self) -> ImageSpec:
        """The base as it is now, with a layer of ours on top."""
        return image(b"ours", base=base_at(self.proxy.host, REPOSITORY))


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    with FakeRegistry() as registry, FaultProxy(registry.host) as proxy:
        made = Bench(registry, proxy, tmp_path / "mirror")
        assert made.push(image(*LAYERS), direct=True).error is None
        yield Mirror(registry, proxy)


@pytest.mark.parametrize("place", [0, LARGEST // 2, -1])
def test_wrong_bytes_of_a_base_are_never_named(mirror: Mirror, tmp_path: Path, place: int) -> None:
    with bench(tmp_path) as at:
        mirror.proxy.add(Fault("flip", "GET", BLOB, at=place, times=1000))
        manifests = len(at.registry.requests("PUT", "/manifests/"))

        pushed = at.push(mirror.image())

        with never("wrong_bytes"):
            assert pushed.error is not None
            assert pushed.error.exit_code == 76
            assert len(at.registry.requests("PUT", "/manifests/")) == manifests
            assert all(sha256(data) == digest for (_, digest), data in at.registry.blobs.items())
        at.check_tag(pushed)


@pytest.mark.parametrize("do", ["cut", "truncate", "delay", "drop", "half-close", "answer"])
def test_a_line_to_the_base_that_breaks_is_taken_up_again(
    mirror: Mirror, tmp_path: Path, patience: Callable[[float], None], do: str
) -> None:
    if do == "delay":
        patience(4.0)
    with bench(tmp_path) as at:
        spec = mirror.image()
        mirror.proxy.add(Fault(do, "GET", BLOB, at=1_000_000, status=429, seconds=60.0))  # type: ignore[arg-type]

        pushed = at.push(spec)

        assert mirror.proxy.faults[0].hits == 1
        assert pushed.error is None
        assert pushed.body_bytes <= sum(map(len, LAYERS)) + 2000  # the upload went on meanwhile
        at.check_tag(pushed)


def test_a_manifest_of_a_base_that_came_damaged_is_refused(mirror: Mirror) -> None:
    mirror.proxy.add(Fault("flip", "GET", "/manifests/", at=60))

    with pytest.raises(Exception, match="returned sha256:"):
        mirror.image()


@pytest.mark.parametrize("mounts", [True, False], ids=["201", "202"])
def test_a_base_of_the_same_registry_arrives_whether_it_can_be_mounted_or_not(
    tmp_path: Path, mounts: bool
) -> None:
    with bench(tmp_path, mounts=mounts) as at:
        for data in LAYERS:
            at.registry.put("bases/one", data)
        assert at.push().error is None
        for key, value in list(at.registry.manifests.items()):
            at.registry.manifests["bases/one", key[1]] = value
        for (_, digest), data in list(at.registry.blobs.items()):
            at.registry.blobs["bases/one", digest] = data
        at.registry.blobs = {k: v for k, v in at.registry.blobs.items() if k[0] == "bases/one"}

        pushed = at.push(image(b"ours", base=base_at(at.proxy.host, "bases/one")))

        assert pushed.error is None
        assert (pushed.body_bytes < 5000) == mounts
        assert at.registry.is_complete(REPOSITORY, "1")

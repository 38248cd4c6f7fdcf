"""Claims in a registry: what spares reading the weights, and all that must not."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.image import ImageSpec, RemoteRange, Written
from packager.images import known_layers
from packager.images.blobs import BlobReader
from packager.images.claim_key import ClaimKeys
from packager.images.claims import MEDIA_CLAIMS, Claim, ClaimKey, write_claims
from packager.images.digest_index import DigestIndex
from packager.images.registry import claims
from packager.images.registry.sink import RegistrySink
from packager.images.tar import TarEntry, make_tar
from packager.images.tee import write_image
from tests.support.cases import cases
from tests.support.doubles.raw_registry import RawRegistry, sha256
from tests.support.doubles.registry import FakeRegistry
from tests.support.made_images import (
    hasty_clients,
    image_with,
    layout_sink,
    registry_sink,
    tar_layer,
)

KEY, OTHER = ClaimKey(b"k" * 32), ClaimKey(b"o" * 32)
SIZE = 1_000_000
CONTENTS = ("sha256:" + "1" * 64, "sha256:" + "2" * 64)
Shards = tuple[Path, Path]


@pytest.fixture(params=[True, False], ids=["with the API", "without it"])
def registry(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    with FakeRegistry(referrers=request.param) as fake:
        yield fake
        assert fake.complaints == []


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    """Two files of one size, so that only their contents tell their layers apart."""
    made = tmp_path / "one", tmp_path / "two"
    for seed, path in enumerate(made):
        path.write_bytes(random.Random(seed).randbytes(SIZE))
    return made


def image_of(shards: Shards, note: bytes = b"note") -> ImageSpec:
    role = {"dev.packager.role": "weights"}
    weights = (
        tar_layer("/m", shard, content=content, annotations=role)
        for shard, content in zip(shards, CONTENTS, strict=True)
    )
    return image_with(*weights, tar_layer("/c", note, role="config"))


@dataclass
class Machine:
    """A machine that never read the files, with a key or without."""

    root: Path
    key: str = ""
    verify: bool = False
    warnings: list[str] = field(default_factory=list)
    reader: BlobReader = field(default_factory=BlobReader)

    def sink(self, target: str) -> RegistrySink:
        environment = {"XDG_CONFIG_HOME": str(self.root / "config")}
        if self.key:
            environment["PACKAGER_CLAIM_KEY"] = self.key
        warn = self.warnings.append
        keys = ClaimKeys(environment, warn)
        return registry_sink(target, hasty_clients(), keys=keys, on_warning=warn)

    def write(self, image: ImageSpec, *targets: str, layout: Path | None = None) -> Written:
        sinks = [self.sink(target) for target in targets]
        written = write_image(
            image,
            [*([layout_sink(layout)] if layout else []), *sinks],
            reader=self.reader,
            index=DigestIndex(self.root / "digests.sqlite"),
            verify=self.verify,
            sleep=lambda seconds: None,
        )
        self.sent = sum(sink.bytes_sent for sink in sinks)
        return written


MachineOf = Callable[..., Machine]


@pytest.fixture
def machine(tmp_path: Path) -> MachineOf:
    """Make a machine; all with a key have that of one team, unless another is given."""
    made = iter(range(99))

    def make(key: ClaimKey | str = KEY, *, verify: bool = False) -> Machine:
        root = tmp_path / f"machine-{next(made)}"
        return Machine(root, key if isinstance(key, str) else key.spelled(), verify)

    return make


@dataclass
class Place:
    """A repository with an image in it, whose claims may be replaced."""

    registry: FakeRegistry
    image: ImageSpec
    first: Written
    repository: str = "team/model"

    @property
    def name(self) -> str:
        return f"{self.registry.host}/{self.repository}"

    @property
    def raw(self) -> RawRegistry:
        return RawRegistry(self.registry.host)

    @property
    def claims(self) -> list[Claim]:
        return [
            Claim(role="weights", content=content, size=layer.size, digest=layer.digest)
            for layer, content in zip(self.first.layers, CONTENTS, strict=False)
        ]

    def written_by(
        self, machine: Machine, image: ImageSpec | None = None, tag: str = "1", **more: Any
    ) -> Written:
        return machine.write(image or self.image, f"{self.name}:{tag}", **more)

    def documents(self, tag: str = "1") -> list[bytes]:
        """What is attached to an image, as it is stored."""
        digest = self.registry.tagged(self.repository, tag)
        found = []
        for entry in self.raw.attached(self.repository, digest):
            manifest = self.raw.manifest(self.repository, entry["digest"])
            found.append(self.raw.blob(self.repository, manifest["layers"][0]["digest"]))
        return found

    def drop_claims(self) -> None:
        held = self.registry.manifests
        for name, (_, data) in list(held.items()):
            if "subject" in json.loads(data) or name[1].startswith("sha256-"):
                del held[name]

    def attach(self, document: bytes, key_id: str = KEY.id, tag: str = "1") -> None:
        digest = self.registry.tagged(self.repository, tag)
        noted = {"dev.packager.claim-key": key_id}
        self.raw.attach(self.repository, digest, document, MEDIA_CLAIMS, **noted)

    def replace_claims(self, document: bytes) -> None:
        self.drop_claims()
        self.attach(document)


@pytest.fixture
def place(registry: FakeRegistry, shards: Shards, machine: MachineOf) -> Place:
    image = image_of(shards)
    first = machine().write(image, f"{registry.host}/team/model:1")
    return Place(registry, image, first)


def digests(written: Written) -> list[str]:
    return [layer.digest for layer in written.layers]


def believed(written: Written) -> list[str]:
    return [layer.believed for layer in written.layers]


def check_was_read(place: Place, fresh: Machine, written: Written) -> None:
    """The layers are those of the first build, and all weights were read for it."""
    assert digests(written) == digests(place.first)
    assert fresh.reader.bytes_read == 2 * SIZE
    assert believed(written) == ["", "", ""]


def test_a_machine_with_the_key_reads_no_weights(place: Place, machine: MachineOf) -> None:
    fresh = machine()

    written = place.written_by(fresh)

    assert digests(written) == digests(place.first)
    assert (fresh.reader.bytes_read, fresh.sent, fresh.warnings) == (0, 0, [])
    assert believed(written) == [KEY.id, KEY.id, ""]
    assert believed(place.first) == ["", "", ""]


def test_a_second_build_writes_no_second_claim(place: Place, machine: MachineOf) -> None:
    place.registry.seen.clear()

    place.written_by(machine())

    assert len(place.documents()) == 1
    stored = [seen.path.rpartition("/")[2] for seen in place.registry.requests("PUT")]
    assert [name for name in stored if ":" in name] == [place.first.image.digest]


def test_the_second_build_of_a_machine_asks_once_for_what_is_attached(
    registry: FakeRegistry, shards: Shards, machine: MachineOf
) -> None:
    one = machine()
    for path in shards:
        os.utime(path, (0, 0))
    image, target = image_of(shards), f"{registry.host}/team/model:1"
    one.write(image, target)
    registry.seen.clear()

    one.write(image, target)

    asked = [seen.path for seen in registry.seen if "referrers" in seen.path]
    tagged = [seen.path for seen in registry.seen if "/manifests/sha256-" in seen.path]
    assert len(asked) == 1
    assert len(tagged) == (0 if registry.quirks.referrers else 1)


class Hub:
    """A hub of the two files, which counts what is fetched; large ones are not hashed first."""

    scheme = "hf"

    def __init__(self, shards: Shards) -> None:
        self.files = {path.name: path.read_bytes() for path in shards}
        self.fetched: list[str] = []

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        name = segment.url.partition("?")[0].rpartition("/")[2]
        self.fetched.append(name)
        yield self.files[name]

    def image(self, shards: Shards) -> ImageSpec:
        """The same image, its files here."""
        image = image_of(shards)
        layers = []
        for layer, (name, data) in zip(image.layers, self.files.items(), strict=False):
            url = f"hf://acme/tiny@{'c' * 40}/{name}?size={SIZE}&sha256={sha256(data)[7:]}"
            remote = RemoteRange(url=url, offset=0, length=SIZE)
            layers.append(replace(layer, blob=make_tar([TarEntry(path="/m", content=remote)])))
        return replace(image, layers=(*layers, *image.layers[2:]))


@pytest.fixture
def streaming(machine: MachineOf, monkeypatch: pytest.MonkeyPatch) -> Callable[[Hub], Machine]:
    """Make a machine without a key that takes large files from a hub."""
    monkeypatch.setattr(known_layers, "HASH_REMOTE_BELOW", 1000)

    def make(hub: Hub) -> Machine:
        fresh = machine("")
        fresh.reader = BlobReader((hub,))
        return fresh

    return make


@pytest.mark.parametrize("lacking", [False, True], ids=["sent nowhere", "an output lacks them"])
def test_large_streams_are_fetched_once_and_not_sent_where_they_are_there(
    place: Place, streaming: Callable[[Hub], Machine], shards: Shards, tmp_path: Path, lacking: bool
) -> None:
    hub = Hub(shards)
    fresh = streaming(hub)

    layout = tmp_path / "out" if lacking else None
    written = place.written_by(fresh, hub.image(shards), layout=layout)

    assert digests(written) == digests(place.first)
    assert sorted(hub.fetched) == ["one", "two"]
    assert lacking or fresh.sent < 5_000


def test_large_streams_are_not_fetched_twice_where_the_registry_says_they_differ(
    place: Place, streaming: Callable[[Hub], Machine], shards: Shards
) -> None:
    """New weights of the same shapes: the old ones are claimed, with whichever key."""
    for seed, path in enumerate(shards):
        path.write_bytes(random.Random(seed + 50).randbytes(SIZE))
    hub = Hub(shards)
    fresh, image = streaming(hub), hub.image(shards)
    layers = [
        replace(layer, content=f"sha256:{n}" + "7" * 63) for n, layer in enumerate(image.layers)
    ]

    place.written_by(fresh, replace(image, layers=tuple(layers[:2])))

    assert sorted(hub.fetched) == ["one", "two"]
    assert fresh.sent > 2 * SIZE


@pytest.mark.parametrize(
    ("key", "said"),
    [("", "there is no key here"), (OTHER, f"the key here is {OTHER.id}")],
    ids=["no key", "another key"],
)
def test_a_machine_without_the_key_reads_once_sends_nothing_and_says_so(
    place: Place, machine: MachineOf, key: ClaimKey | str, said: str
) -> None:
    fresh = machine(key)

    written = place.written_by(fresh)

    check_was_read(place, fresh, written)
    assert fresh.sent < 10_000
    [warning] = fresh.warnings
    assert f"claimed with the key '{KEY.id}', and {said}" in warning


def test_the_claims_of_two_teams_stand_side_by_side(place: Place, machine: MachineOf) -> None:
    place.written_by(machine(OTHER))

    for key in (KEY, OTHER):
        fresh = machine(key)
        place.written_by(fresh)
        assert (fresh.reader.bytes_read, fresh.warnings) == (0, [])


def test_with_verify_nothing_is_believed(place: Place, machine: MachineOf) -> None:
    fresh = machine(verify=True)

    check_was_read(place, fresh, place.written_by(fresh))

    assert fresh.sent == 0


def test_claims_that_are_switched_off_are_neither_read_nor_written(
    registry: FakeRegistry, place: Place, machine: MachineOf
) -> None:
    registry.seen.clear()
    fresh = machine("off")

    place.written_by(fresh, tag="2")

    assert fresh.reader.bytes_read == 2 * SIZE
    assert fresh.warnings == []
    assert registry.requests("GET", "referrers") == []
    one, two = (registry.tagged("team/model", tag).replace(":", "-") for tag in ("1", "2"))
    assert registry.tagged("team/model", two) in ("", registry.tagged("team/model", one))


def evil_claims(place: Place) -> list[Claim]:
    """Claims that the contents are the attacker's blobs, which lie ready with the right size."""
    made = []
    for position, claim in enumerate(place.claims):
        data = bytes([position]) * claim.size
        place.registry.put("team/model", data)
        made.append(
            Claim(role="weights", content=claim.content, size=claim.size, digest=sha256(data))
        )
    return made


def ours(place: Place) -> dict[str, Any]:
    """Our own document."""
    found: dict[str, Any] = json.loads(place.documents()[0])
    return found


def theirs(place: Place) -> dict[str, Any]:
    """The attacker's document."""
    found: dict[str, Any] = json.loads(write_claims(OTHER, place.name, evil_claims(place)))
    return found


def swapped(place: Place) -> object:
    """Our own document, with the digests of two layers of one size exchanged."""
    document = ours(place)
    one, two = document["claims"]
    one["digest"], two["digest"] = two["digest"], one["digest"]
    return document


def for_place(place: Place, name: str) -> object:
    """A document that the key's owner wrote for a place of their own."""
    return json.loads(write_claims(KEY, name, evil_claims(place)))


def with_claims(place: Place, change: Callable[[dict[str, Any]], dict[str, Any]]) -> object:
    """Our own document, with each claim changed."""
    document = ours(place)
    return {**document, "claims": [{**one, **change(one)} for one in document["claims"]]}


LIES: dict[str, Callable[[Place], object]] = {
    "forged": lambda place: {**theirs(place), "key": KEY.id},
    "swapped": swapped,
    "for another repository": lambda place: for_place(place, f"{place.registry.host}/team/other"),
    "for another host": lambda place: for_place(place, "127.0.0.1:1/team/model"),
    "of another key": theirs,
    "of no key": lambda place: {**theirs(place), "mac": "", "key": ""},
    "with one added": lambda place: {
        **ours(place),
        "claims": theirs(place)["claims"] + ours(place)["claims"],
    },
    "in other roles": lambda place: with_claims(place, lambda one: {"role": "draft"}),
    "of other sizes": lambda place: with_claims(place, lambda one: {"size": one["size"] + 512}),
}
every_lie = pytest.mark.parametrize("lie", LIES)


@every_lie
def test_a_claim_that_is_not_proven_places_no_layer(
    place: Place, machine: MachineOf, lie: str
) -> None:
    place.replace_claims(json.dumps(LIES[lie](place)).encode())
    fresh = machine()

    check_was_read(place, fresh, place.written_by(fresh))

    [warning] = fresh.warnings
    if lie == "forged":  # a forgery is told from another key
        assert f"names the key {KEY.id} and was not made with it" in warning


@every_lie
def test_a_lie_beside_a_true_claim_changes_nothing(
    place: Place, machine: MachineOf, lie: str
) -> None:
    place.attach(json.dumps(LIES[lie](place)).encode())
    fresh = machine()

    assert digests(place.written_by(fresh)) == digests(place.first)
    assert fresh.reader.bytes_read == 0


@cases("a_document_that_cannot_be_used_costs_reading_alone")
def test_a_document_that_cannot_be_used_costs_reading_alone(
    place: Place, machine: MachineOf, document: bytes
) -> None:
    place.replace_claims(document)
    fresh = machine()

    check_was_read(place, fresh, place.written_by(fresh))


def test_an_old_claim_is_still_true(place: Place, machine: MachineOf, shards: Shards) -> None:
    """Replayed beside another image it names the same bytes: a claim is about contents."""
    [document] = place.documents()
    place.written_by(machine("off"), image_of(shards, b"other"), "2")
    place.drop_claims()
    place.attach(document, tag="2")
    fresh = machine()

    assert digests(place.written_by(fresh, tag="3")) == digests(place.first)
    assert fresh.reader.bytes_read == 0


def test_changed_weights_are_always_read(place: Place, machine: MachineOf, shards: Shards) -> None:
    shards[0].write_bytes(random.Random(9).randbytes(SIZE))
    image = image_of(shards)
    changed = replace(image.layers[0], content="sha256:" + "9" * 64)
    fresh = machine()

    written = place.written_by(fresh, replace(image, layers=(changed, *image.layers[1:])))

    assert digests(written)[0] != digests(place.first)[0]
    assert digests(written)[1:] == digests(place.first)[1:]
    assert fresh.reader.bytes_read == SIZE


def test_a_claim_about_a_lost_blob_is_not_believed(place: Place, machine: MachineOf) -> None:
    for digest in digests(place.first)[:2]:
        del place.registry.blobs["team/model", digest]
    fresh = machine()

    assert digests(place.written_by(fresh)) == digests(place.first)
    assert fresh.sent > 2 * SIZE


def test_outputs_are_believed_together(place: Place, machine: MachineOf, tmp_path: Path) -> None:
    targets = f"{place.name}:1", f"{place.registry.host}/team/second:1"
    both, again = machine(), machine()
    written = both.write(place.image, *targets)
    again.write(place.image, *targets)

    assert {ref.digest for ref in written.refs} == {place.first.image.digest}
    assert both.reader.bytes_read > SIZE
    assert again.reader.bytes_read == 0
    read = place.written_by(machine(), layout=tmp_path / "out")
    assert believed(read) == ["", "", ""]
    assert digests(read) == digests(place.first)


def test_what_is_proven_for_one_output_is_for_it_alone(place: Place, machine: MachineOf) -> None:
    """The other repository has the blobs, and nobody with the key has said so there."""
    other = f"{place.registry.host}/team/second:1"
    machine("off").write(place.image, other)
    both = machine()

    check_was_read(place, both, both.write(place.image, f"{place.name}:1", other))


def test_many_keys_do_not_fill_the_registry(
    place: Place, machine: MachineOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MAX_ATTACHED", 3)
    last = machine()
    for number in range(4):
        last = machine(ClaimKey(bytes([number]) * 32))
        place.written_by(last)

    assert len(place.documents()) == 3
    assert "share one key: `packager claims export`" in last.warnings[-1]


def test_our_claim_is_found_among_many_of_others(place: Place, machine: MachineOf) -> None:
    place.drop_claims()
    for key in (*(ClaimKey(bytes([number]) * 32) for number in range(12)), KEY):
        place.attach(write_claims(key, place.name, place.claims), key.id)
    fresh = machine()

    place.written_by(fresh)

    assert fresh.reader.bytes_read == 0


def test_a_registry_that_takes_no_artifacts_gets_the_image(
    registry: FakeRegistry, shards: Shards, machine: MachineOf
) -> None:
    registry.quirks.no_artifacts = True
    one = machine()

    written = one.write(image_of(shards), f"{registry.host}/team/model:1")

    assert registry.tagged("team/model", "1") == written.image.digest
    [warning] = one.warnings
    assert "the claims about its layers are not" in warning
    assert "other machines will read the weights" in warning


@cases("lists")
def test_a_hostile_list_of_referrers_costs_reading_alone(
    shards: Shards, machine: MachineOf, listed: bytes
) -> None:
    with FakeRegistry(referrers=True) as registry:
        image, target = image_of(shards), f"{registry.host}/team/model:1"
        first, fresh = machine().write(image, target), machine()
        registry.quirks.listed = listed
        registry.seen.clear()

        written = fresh.write(image, target)

    assert digests(written) == digests(first)
    assert fresh.reader.bytes_read == 2 * SIZE
    assert all("tags/list" in seen.path or ".." not in seen.path for seen in registry.seen)
    assert len(registry.requests("GET", "/manifests/sha256:aaaa")) <= 8

"""Claims in a registry: what spares reading the weights, and all that must not."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from packager.core.image import (
    FileRange,
    ImageSpec,
    Inline,
    Layer,
    Platform,
    RemoteRange,
    RuntimeConfig,
    Written,
)
from packager.images import known
from packager.images.blobs import BlobReader
from packager.images.claim_key import ClaimKeys
from packager.images.claims import MEDIA_CLAIMS, Claim, ClaimKey, read_claims, write_claims
from packager.images.digest_index import DigestIndex
from packager.images.layout.sink import LayoutSink
from packager.images.oci import scratch
from packager.images.registry.clients import RegistryClients
from packager.images.registry.sink import RegistrySink
from packager.images.registry.transport import Transport
from packager.images.tar import TarEntry, make_tar
from packager.images.target import parse_layout_target, parse_registry_target
from packager.images.tee import write_image
from tests.support.doubles.raw_registry import RawRegistry, sha256
from tests.support.doubles.registry import FakeRegistry

KEY, OTHER = ClaimKey(b"k" * 32), ClaimKey(b"o" * 32)
SIZE = 1_000_000
CONTENTS = ("sha256:" + "1" * 64, "sha256:" + "2" * 64)


@pytest.fixture(params=[True, False], ids=["with the API", "without it"])
def registry(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    with FakeRegistry(referrers=request.param) as fake:
        yield fake
        assert fake.complaints == []


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of one size, so that only their contents tell their layers apart."""
    made = tmp_path / "one", tmp_path / "two"
    for seed, path in enumerate(made):
        path.write_bytes(random.Random(seed).randbytes(SIZE))
    return made


def image_of(shards: tuple[Path, ...], note: bytes = b"note") -> ImageSpec:
    weights = (
        Layer(
            role="weights",
            blob=make_tar([TarEntry(path="/m", content=whole(shard))]),
            content=content,
            annotations={"dev.packager.role": "weights"},
        )
        for shard, content in zip(shards, CONTENTS, strict=True)
    )
    return ImageSpec(
        base=scratch(Platform()),
        layers=(
            *weights,
            Layer(role="config", blob=make_tar([TarEntry(path="/c", content=Inline(note))])),
        ),
        runtime=RuntimeConfig(),
        created="1970-01-01T00:00:00Z",
    )


def whole(path: Path) -> FileRange:
    return FileRange(path=str(path), offset=0, length=SIZE)


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
        clients = RegistryClients(
            find_credentials=lambda host: None, transport=Transport(sleep=lambda seconds: None)
        )
        keys = ClaimKeys(environment, self.warnings.append)
        return RegistrySink(
            parse_registry_target(target),
            clients=clients,
            keys=keys,
            on_warning=self.warnings.append,
        )

    def write(self, image: ImageSpec, *targets: str, layout: Path | None = None) -> Written:
        sinks = [self.sink(target) for target in targets]
        beside = [LayoutSink(parse_layout_target(f"oci:{layout}"))] if layout else []
        written = write_image(
            image,
            [*beside, *sinks],
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

    def attach(self, document: bytes, key_id: str = "", tag: str = "1") -> None:
        digest = self.registry.tagged(self.repository, tag)
        noted = {"dev.packager.claim-key": key_id} if key_id else {}
        self.raw.attach(self.repository, digest, document, MEDIA_CLAIMS, **noted)


@pytest.fixture
def place(registry: FakeRegistry, shards: tuple[Path, Path], machine: MachineOf) -> Place:
    image = image_of(shards)
    first = machine().write(image, f"{registry.host}/team/model:1")
    return Place(registry, image, first)


def digests(written: Written) -> list[str]:
    return [layer.digest for layer in written.layers]


def test_a_machine_with_the_key_reads_no_weights(place: Place, machine: MachineOf) -> None:
    fresh = machine()

    written = fresh.write(place.image, f"{place.name}:1")

    assert digests(written) == digests(place.first)
    assert (fresh.reader.bytes_read, fresh.sent, fresh.warnings) == (0, 0, [])


def test_layers_that_were_believed_are_told_from_those_that_were_read(
    place: Place, machine: MachineOf
) -> None:
    believed = [layer.believed for layer in machine().write(place.image, f"{place.name}:1").layers]

    assert [layer.believed for layer in place.first.layers] == ["", "", ""]
    assert believed == [KEY.id, KEY.id, ""]


def test_the_image_is_one_whoever_builds_it(place: Place, machine: MachineOf) -> None:
    found = {
        machine(key).write(place.image, f"{place.name}:1").image.digest
        for key in (KEY, OTHER, "off")
    }

    assert found == {place.first.image.digest}


def test_claims_are_for_the_repository_they_were_written_to(place: Place) -> None:
    [document] = place.documents()

    found = read_claims(document)
    assert (found.repository, found.key_id) == (place.name, KEY.id)
    assert set(found.claims) == set(place.claims)


def test_a_second_build_writes_no_second_claim(place: Place, machine: MachineOf) -> None:
    place.registry.seen.clear()

    machine().write(place.image, f"{place.name}:1")

    assert len(place.documents()) == 1
    stored = [seen.path.rpartition("/")[2] for seen in place.registry.requests("PUT")]
    assert stored == [place.first.image.digest]


def test_the_second_build_of_a_machine_asks_once_for_what_is_attached(
    registry: FakeRegistry, shards: tuple[Path, Path], machine: MachineOf
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
    """A hub of the two files, which counts what is fetched."""

    scheme = "hf"

    def __init__(self, shards: tuple[Path, Path]) -> None:
        self.files = {path.name: path.read_bytes() for path in shards}
        self.fetched: list[str] = []

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        name = segment.url.partition("?")[0].rpartition("/")[2]
        self.fetched.append(name)
        yield self.files[name]


def streamed(shards: tuple[Path, Path]) -> ImageSpec:
    """The same image, its files on a hub."""
    image = image_of(shards)
    layers = []
    for layer, path in zip(image.layers, shards, strict=False):
        digest = sha256(path.read_bytes())[7:]
        url = f"hf://acme/tiny@{'c' * 40}/{path.name}?size={SIZE}&sha256={digest}"
        remote = RemoteRange(url=url, offset=0, length=SIZE)
        layers.append(replace(layer, blob=make_tar([TarEntry(path="/m", content=remote)])))
    return replace(image, layers=(*layers, *image.layers[2:]))


def test_large_streams_are_fetched_once_and_not_sent_where_they_are_there(
    place: Place,
    machine: MachineOf,
    shards: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known, "HASH_REMOTE_BELOW", 1000)
    hub, fresh = Hub(shards), machine("")
    fresh.reader = BlobReader((hub,))

    written = fresh.write(streamed(shards), f"{place.name}:1")

    assert digests(written) == digests(place.first)
    assert sorted(hub.fetched) == ["one", "two"]
    assert fresh.sent < 5_000


def test_large_streams_are_not_fetched_twice_for_an_output_that_lacks_them(
    place: Place,
    machine: MachineOf,
    shards: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known, "HASH_REMOTE_BELOW", 1000)
    hub, fresh = Hub(shards), machine("")
    fresh.reader = BlobReader((hub,))

    written = fresh.write(streamed(shards), f"{place.name}:1", layout=tmp_path / "out")

    assert digests(written) == digests(place.first)
    assert sorted(hub.fetched) == ["one", "two"]


def test_large_streams_are_not_fetched_twice_where_the_registry_says_they_differ(
    place: Place,
    machine: MachineOf,
    shards: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New weights of the same shapes: the old ones are claimed, with whichever key."""
    monkeypatch.setattr(known, "HASH_REMOTE_BELOW", 1000)
    for seed, path in enumerate(shards):
        path.write_bytes(random.Random(seed + 50).randbytes(SIZE))
    image = streamed(shards)
    layers = [
        replace(layer, content=f"sha256:{n}" + "7" * 63) for n, layer in enumerate(image.layers)
    ]
    hub, fresh = Hub(shards), machine("")
    fresh.reader = BlobReader((hub,))

    fresh.write(replace(image, layers=tuple(layers[:2])), f"{place.name}:1")

    assert sorted(hub.fetched) == ["one", "two"]
    assert fresh.sent > 2 * SIZE


def test_other_settings_are_claimed_beside_their_own_image(
    place: Place, machine: MachineOf, shards: tuple[Path, Path]
) -> None:
    """The first image may be deleted, and its claims with it."""
    fresh = machine()

    fresh.write(image_of(shards, b"other"), f"{place.name}:2")

    assert fresh.reader.bytes_read == 0
    assert place.documents("2") == place.documents("1")


def test_a_machine_without_the_key_reads_once_and_sends_nothing(
    place: Place, machine: MachineOf, shards: tuple[Path, Path]
) -> None:
    fresh = machine("")

    written = fresh.write(place.image, f"{place.name}:1")

    assert digests(written) == digests(place.first)
    assert fresh.reader.bytes_read == 2 * SIZE
    assert fresh.sent < 10_000
    assert [layer.believed for layer in written.layers] == ["", "", ""]
    [warning] = fresh.warnings
    assert f"claimed with the key '{KEY.id}', and there is no key here" in warning


def test_a_machine_with_another_key_says_so_once(place: Place, machine: MachineOf) -> None:
    fresh = machine(OTHER)

    fresh.write(place.image, f"{place.name}:1")

    assert fresh.reader.bytes_read == 2 * SIZE
    [warning] = fresh.warnings
    assert f"claimed with the key '{KEY.id}', and the key here is {OTHER.id}" in warning


def test_the_claims_of_two_teams_stand_side_by_side(place: Place, machine: MachineOf) -> None:
    machine(OTHER).write(place.image, f"{place.name}:1")

    for key in (KEY, OTHER):
        fresh = machine(key)
        fresh.write(place.image, f"{place.name}:1")
        assert (fresh.reader.bytes_read, fresh.warnings) == (0, [])


def test_with_verify_nothing_is_believed(place: Place, machine: MachineOf) -> None:
    fresh = machine(verify=True)

    written = fresh.write(place.image, f"{place.name}:1")

    assert fresh.reader.bytes_read == 2 * SIZE
    assert [layer.believed for layer in written.layers] == ["", "", ""]
    assert fresh.sent == 0


def test_claims_that_are_switched_off_are_neither_read_nor_written(
    registry: FakeRegistry, place: Place, machine: MachineOf
) -> None:
    registry.seen.clear()
    fresh = machine("off")

    fresh.write(place.image, f"{place.name}:2")

    assert fresh.reader.bytes_read == 2 * SIZE
    assert fresh.warnings == []
    assert registry.requests("GET", "referrers") == []
    assert registry.tagged("team/model", registry.tagged("team/model", "2").replace(":", "-")) in (
        "",
        registry.tagged("team/model", registry.tagged("team/model", "1").replace(":", "-")),
    )


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


def forged(place: Place) -> bytes:
    """A document with our key's id and somebody's guess at its authentication."""
    theirs = json.loads(write_claims(OTHER, place.name, evil_claims(place)))
    return json.dumps({**theirs, "key": KEY.id}).encode()


def swapped(place: Place) -> bytes:
    """Our own document, with the digests of two layers of one size exchanged."""
    document = json.loads(place.documents()[0])
    one, two = document["claims"]
    one["digest"], two["digest"] = two["digest"], one["digest"]
    return json.dumps(document).encode()


def for_another_repository(place: Place) -> bytes:
    """A document that the key's owner wrote for a repository of their own."""
    return write_claims(KEY, f"{place.registry.host}/team/playground", evil_claims(place))


def for_another_host(place: Place) -> bytes:
    return write_claims(KEY, "127.0.0.1:1/team/model", evil_claims(place))


def of_another_key(place: Place) -> bytes:
    return write_claims(OTHER, place.name, evil_claims(place))


def of_no_key(place: Place) -> bytes:
    document = json.loads(write_claims(OTHER, place.name, evil_claims(place)))
    return json.dumps({**document, "mac": "", "key": ""}).encode()


def with_one_added(place: Place) -> bytes:
    document = json.loads(place.documents()[0])
    theirs = json.loads(write_claims(OTHER, place.name, evil_claims(place)))
    return json.dumps({**document, "claims": theirs["claims"] + document["claims"]}).encode()


def in_other_roles(place: Place) -> bytes:
    document = json.loads(place.documents()[0])
    return json.dumps(
        {**document, "claims": [{**one, "role": "draft"} for one in document["claims"]]}
    ).encode()


def of_other_sizes(place: Place) -> bytes:
    document = json.loads(place.documents()[0])
    return json.dumps(
        {**document, "claims": [{**one, "size": one["size"] + 512} for one in document["claims"]]}
    ).encode()


LIES = (
    *(forged, swapped, for_another_repository, for_another_host, of_another_key, of_no_key),
    *(with_one_added, in_other_roles, of_other_sizes),
)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__.replace("_", " "))
def test_a_claim_that_is_not_proven_places_no_layer(
    place: Place, machine: MachineOf, lie: Callable[[Place], bytes]
) -> None:
    document = lie(place)
    place.drop_claims()
    place.attach(document, KEY.id)
    fresh = machine()

    written = fresh.write(place.image, f"{place.name}:1")

    assert digests(written) == digests(place.first)
    assert fresh.reader.bytes_read == 2 * SIZE
    assert [layer.believed for layer in written.layers] == ["", "", ""]
    assert len(fresh.warnings) == 1


def test_a_forgery_is_told_from_another_key(place: Place, machine: MachineOf) -> None:
    document = forged(place)
    place.drop_claims()
    place.attach(document, KEY.id)
    fresh = machine()

    fresh.write(place.image, f"{place.name}:1")

    assert f"names the key {KEY.id} and was not made with it" in fresh.warnings[0]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__.replace("_", " "))
def test_a_lie_beside_a_true_claim_changes_nothing(
    place: Place, machine: MachineOf, lie: Callable[[Place], bytes]
) -> None:
    place.attach(lie(place), KEY.id)
    fresh = machine()

    written = fresh.write(place.image, f"{place.name}:1")

    assert digests(written) == digests(place.first)
    assert fresh.reader.bytes_read == 0


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"claims":' * 20_000,
        b"\xff" * 1000,
        b"{}",
        b"0" * 5_000_000,
    ],
    ids=["empty", "cut off", "deep", "deep objects", "binary", "no claims", "huge"],
)
def test_a_document_that_cannot_be_used_costs_reading_alone(
    place: Place, machine: MachineOf, document: bytes
) -> None:
    place.drop_claims()
    place.attach(document, KEY.id)
    fresh = machine()

    written = fresh.write(place.image, f"{place.name}:1")

    assert digests(written) == digests(place.first)
    assert fresh.reader.bytes_read == 2 * SIZE


def test_an_old_claim_of_the_same_repository_is_still_true(
    place: Place, machine: MachineOf, shards: tuple[Path, Path]
) -> None:
    """Replayed beside another image it names the same bytes: a claim is about contents."""
    [document] = place.documents()
    machine("off").write(image_of(shards, b"other"), f"{place.name}:2")
    place.drop_claims()
    place.attach(document, KEY.id, tag="2")
    fresh = machine()

    written = fresh.write(place.image, f"{place.name}:3")

    assert digests(written) == digests(place.first)
    assert fresh.reader.bytes_read == 0


def test_changed_weights_are_read_whatever_old_claims_say(
    place: Place, machine: MachineOf, shards: tuple[Path, Path]
) -> None:
    shards[0].write_bytes(random.Random(9).randbytes(SIZE))
    image = image_of(shards)
    changed = ImageSpec(
        base=image.base,
        layers=(
            Layer(
                role="weights",
                blob=image.layers[0].blob,
                content="sha256:" + "9" * 64,
                annotations=image.layers[0].annotations,
            ),
            *image.layers[1:],
        ),
        runtime=image.runtime,
        created=image.created,
    )
    fresh = machine()

    written = fresh.write(changed, f"{place.name}:1")

    assert digests(written)[0] != digests(place.first)[0]
    assert digests(written)[1:] == digests(place.first)[1:]
    assert fresh.reader.bytes_read == SIZE


def test_deleted_claims_cost_reading(place: Place, machine: MachineOf) -> None:
    place.drop_claims()
    fresh = machine()

    written = fresh.write(place.image, f"{place.name}:1")

    assert digests(written) == digests(place.first)
    assert fresh.reader.bytes_read == 2 * SIZE
    assert len(place.documents()) == 1


def test_a_claim_about_a_blob_that_is_gone_is_not_believed(
    place: Place, machine: MachineOf
) -> None:
    for digest in digests(place.first)[:2]:
        del place.registry.blobs["team/model", digest]
    fresh = machine()

    written = fresh.write(place.image, f"{place.name}:1")

    assert digests(written) == digests(place.first)
    assert fresh.sent > 2 * SIZE


def test_several_outputs_are_believed_only_together(
    place: Place, machine: MachineOf, tmp_path: Path
) -> None:
    other = f"{place.registry.host}/team/second:1"
    both = machine()
    written = both.write(place.image, f"{place.name}:1", other)

    assert {ref.digest for ref in written.refs} == {place.first.image.digest}
    assert both.reader.bytes_read > SIZE

    again = machine()
    again.write(place.image, f"{place.name}:1", other)
    assert again.reader.bytes_read == 0
    beside = machine()
    read = beside.write(place.image, f"{place.name}:1", layout=tmp_path / "out")
    assert [layer.believed for layer in read.layers] == ["", "", ""]
    assert digests(read) == digests(place.first)


def test_what_is_proven_for_one_output_is_not_believed_for_another(
    place: Place, machine: MachineOf
) -> None:
    """The other repository has the blobs, and nobody with the key has said so there."""
    other = f"{place.registry.host}/team/second:1"
    machine("off").write(place.image, other)
    both = machine()

    written = both.write(place.image, f"{place.name}:1", other)

    assert [layer.believed for layer in written.layers] == ["", "", ""]
    assert both.reader.bytes_read == 2 * SIZE


def test_many_machines_without_a_common_key_do_not_fill_the_registry(
    place: Place, machine: MachineOf
) -> None:
    last = machine()
    for number in range(17):
        last = machine(ClaimKey(bytes([number]) * 32))
        last.write(place.image, f"{place.name}:1")

    assert len(place.documents()) == 16
    assert "share one key: `packager claims export`" in last.warnings[-1]


def test_our_claim_is_found_among_many_of_others(place: Place, machine: MachineOf) -> None:
    place.drop_claims()
    for number in range(12):
        key = ClaimKey(bytes([number]) * 32)
        place.attach(write_claims(key, place.name, place.claims), key.id)
    place.attach(write_claims(KEY, place.name, place.claims), KEY.id)
    fresh = machine()

    fresh.write(place.image, f"{place.name}:1")

    assert fresh.reader.bytes_read == 0


def test_a_registry_that_takes_no_artifacts_gets_the_image(
    registry: FakeRegistry, shards: tuple[Path, Path], machine: MachineOf
) -> None:
    registry.quirks.no_artifacts = True
    one = machine()

    written = one.write(image_of(shards), f"{registry.host}/team/model:1")

    assert registry.tagged("team/model", "1") == written.image.digest
    [warning] = one.warnings
    assert "the claims about its layers are not" in warning
    assert "other machines will read the weights" in warning


def entry(**fields: object) -> dict[str, object]:
    return {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": "sha256:" + "a" * 64,
        "size": 100,
        "artifactType": MEDIA_CLAIMS,
        **fields,
    }


@pytest.mark.parametrize(
    "listed",
    [
        json.dumps({"manifests": [entry(digest="sha256:../../../../tags/list")]}).encode(),
        json.dumps({"manifests": [entry(digest=["x"]), 7, None, [], {}]}).encode(),
        json.dumps({"manifests": [entry(size="many"), entry(annotations=["x"])]}).encode(),
        json.dumps({"manifests": [entry()] * 20_000}).encode(),
        json.dumps({"manifests": {"a": "b"}}).encode(),
        b"[" * 1_000_000,
        b"not JSON",
        b"x" * 5_000_000,
    ],
    ids=["path", "types", "sizes", "many", "object", "deep", "text", "huge"],
)
def test_a_hostile_list_of_referrers_costs_reading_alone(
    shards: tuple[Path, Path], machine: MachineOf, listed: bytes
) -> None:
    with FakeRegistry(referrers=True) as registry:
        first = machine().write(image_of(shards), f"{registry.host}/team/model:1")
        registry.quirks.listed = listed
        registry.seen.clear()
        fresh = machine()

        written = fresh.write(image_of(shards), f"{registry.host}/team/model:1")

    assert digests(written) == digests(first)
    assert fresh.reader.bytes_read == 2 * SIZE
    assert all("tags/list" in seen.path or ".." not in seen.path for seen in registry.seen)
    assert len(registry.requests("GET", "/manifests/sha256:aaaa")) <= 8

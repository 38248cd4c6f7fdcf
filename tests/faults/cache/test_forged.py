"""Entries that somebody forged, swapped, replayed or changed: refused, counted and rebuilt."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.key import KeyDocument
from artifact_cache.trust import Signer, Trust, generate_key, load_signer, load_trusted_keys
from artifact_cache.trust import trust_key as add_key
from tests.faults.cache.state import path_of
from tests.faults.cache.working import OldBuild
from tests.faults.counters import never, tried
from tests.faults.scale import LONG
from tests.support.cache_entries import DOCUMENTS, document, files_of
from tests.support.cache_opening import open_local
from tests.support.known import known
from tests.support.places import files_below

SEEDS = 20 if LONG else 1
REFUSALS = {"policy", "integrity", "newer"}


@dataclass(frozen=True)
class Site:
    """A cache that requires signatures, with keys of ours and of a stranger."""

    root: Path
    signer: Signer
    stranger: Signer
    trust: Trust

    def open(self) -> ArtifactCache:
        return open_local(self.root, trust=self.trust, signer=self.signer)

    def publish(self, wanted: KeyDocument, content: bytes, signer: Signer | None) -> None:
        """Publish with somebody's signature, or none, as one who can write here would."""
        into = self.root.parent / "forging"
        open_local(self.root, signer=signer).get_or_build(wanted, OldBuild(content), into)
        shutil.rmtree(into)


@pytest.fixture
def site(here: Path) -> Site:
    public = generate_key(here / "ours.pem")
    generate_key(here / "theirs.pem")
    add_key(here / "trusted.json", public)
    trust = Trust(load_trusted_keys(here / "trusted.json"), require_signed=True)
    return Site(
        here / "cache", load_signer(here / "ours.pem"), load_signer(here / "theirs.pem"), trust
    )


Forgery = Callable[[Site, KeyDocument, random.Random], None]


def unsigned(site: Site, wanted: KeyDocument, _: random.Random) -> None:
    site.publish(wanted, b"evil", None)


def signed_by_a_stranger(site: Site, wanted: KeyDocument, _: random.Random) -> None:
    site.publish(wanted, b"evil", site.stranger)


def swapped(site: Site, wanted: KeyDocument, _: random.Random) -> None:
    """A good entry of other inputs lies where this one belongs."""
    site.publish(document(77), b"evil", site.signer)
    path = path_of(site.root, wanted)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(path_of(site.root, document(77)).read_bytes())


def signature_of_another(site: Site, wanted: KeyDocument, _: random.Random) -> None:
    site.publish(document(77), b"good", site.signer)
    other = json.loads(path_of(site.root, document(77)).read_bytes())
    site.publish(wanted, b"evil", site.stranger)
    _rewrite(site, wanted, {"signatures": other["signatures"]})


def claimed(site: Site, wanted: KeyDocument, _: random.Random) -> None:
    """A stranger's signature with the name of our key."""
    site.publish(document(77), b"good", site.signer)
    [ours] = json.loads(path_of(site.root, document(77)).read_bytes())["signatures"]
    site.publish(wanted, b"evil", site.stranger)
    [theirs] = json.loads(path_of(site.root, wanted).read_bytes())["signatures"]
    _rewrite(site, wanted, {"signatures": [{**theirs, "keyid": ours["keyid"]}]})


def other_outputs(site: Site, wanted: KeyDocument, _: random.Random) -> None:
    """A good entry of ours that names the blobs of another one."""
    site.publish(document(77), b"evil", site.signer)
    site.publish(wanted, b"good", site.signer)
    other = _payload(site, document(77))
    _rewrite_payload(site, wanted, {"outputs": other["outputs"]})


def swapped_blob(site: Site, wanted: KeyDocument, dice: random.Random) -> None:
    """The entry is good, and one of its blobs is another's."""
    site.publish(wanted, b"good", site.signer)
    blob = dice.choice(sorted(site.root.glob("cas/sha256/??/*")))
    size = blob.stat().st_size
    blob.unlink()
    blob.write_bytes(b"e" * size)


def tampered(site: Site, wanted: KeyDocument, dice: random.Random) -> None:
    """One byte of the envelope is another one."""
    site.publish(wanted, b"evil", site.signer)
    path = path_of(site.root, wanted)
    data = bytearray(path.read_bytes())
    place = dice.randrange(len(data))
    data[place] = dice.choice([byte for byte in range(32, 127) if byte != data[place]])
    path.chmod(0o644)
    path.write_bytes(data)


def stripped(site: Site, wanted: KeyDocument, _: random.Random) -> None:
    """The envelope is gone and the payload lies there bare."""
    site.publish(wanted, b"evil", site.signer)
    path = path_of(site.root, wanted)
    data = base64.b64decode(json.loads(path.read_bytes())["payload"])
    path.chmod(0o644)
    path.write_bytes(data)


def replayed_under_another_type(site: Site, wanted: KeyDocument, _: random.Random) -> None:
    site.publish(wanted, b"evil", site.signer)
    _rewrite(site, wanted, {"payloadType": "application/vnd.in-toto+json"})


FORGERIES: tuple[Forgery, ...] = (
    unsigned,
    signed_by_a_stranger,
    swapped,
    signature_of_another,
    claimed,
    other_outputs,
    swapped_blob,
    tampered,
    stripped,
    replayed_under_another_type,
)


# What the notice of each says where that does not depend on the dice.
CODES = {
    **dict.fromkeys((unsigned, signed_by_a_stranger, signature_of_another, claimed), "refused"),
    **dict.fromkeys((swapped, swapped_blob), "corrupt"),
}


def _rewrite(site: Site, wanted: KeyDocument, fields: dict[str, Any]) -> None:
    path = path_of(site.root, wanted)
    envelope = json.loads(path.read_bytes())
    path.chmod(0o644)
    path.write_text(json.dumps({**envelope, **fields}))


def _payload(site: Site, wanted: KeyDocument) -> dict[str, Any]:
    envelope = json.loads(path_of(site.root, wanted).read_bytes())
    return dict(json.loads(base64.b64decode(envelope["payload"])))


def _rewrite_payload(site: Site, wanted: KeyDocument, fields: dict[str, Any]) -> None:
    """Change the payload and have its own digest fit; only the signature can tell."""
    from artifact_cache.entry import Entry, payload_bytes

    plain = {**_payload(site, wanted), **fields}
    del plain["check"]
    payload = payload_bytes(Entry.model_validate_json(json.dumps(plain)))
    _rewrite(site, wanted, {"payload": base64.b64encode(payload).decode()})


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.__name__)
def test_a_forged_entry_is_refused_counted_and_replaced(site: Site, forgery: Forgery) -> None:
    for seed in range(SEEDS):
        for number, wanted in enumerate(DOCUMENTS):
            tried()
            forgery(site, wanted, random.Random(f"{seed} {number}"))

            first = site.open().get_or_build(wanted, OldBuild(b"good"), site.root.parent / "first")
            second = site.open().get_or_build(wanted, OldBuild(b"no"), site.root.parent / "second")

            with never("wrong_bytes"):
                assert files_below(first.path) == files_of(b"good"), wanted.kind
                assert files_below(second.path) == files_of(b"good")
            assert not first.hit
            codes = [notice.code for notice in first.notices]
            assert codes == [CODES.get(forgery, *codes)]
            stats = known(site.open().stats)
            assert REFUSALS & {total.event for total in stats.totals()}
            with never("manual_cleanup"):
                assert second.hit, (wanted.kind, first.notices, second.notices)
            shutil.rmtree(site.root)
            shutil.rmtree(first.path)
            shutil.rmtree(second.path)

"""Only what a trusted key vouches for is used, and nothing of the rest is."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.entry import parse_entry
from artifact_cache.errors import Rejected, Untrusted, UnusableKeys
from artifact_cache.key import KeyDocument
from artifact_cache.results import CacheResult
from artifact_cache.store import address_of
from artifact_cache.stores.trusted import TrustedStore
from artifact_cache.trust import (
    Signer,
    Trust,
    generate_key,
    load_signer,
    load_trusted_keys,
    pae,
    trust_key,
)
from tests.support.cache_entries import CHECKPOINT, DOCUMENTS, Build, document, files_of
from tests.support.cache_opening import LocalStore, open_cache, open_local
from tests.support.cache_stores import damage, the_blob, the_entry
from tests.support.cases import cases
from tests.support.known import known
from tests.support.places import files_below


class Keys:
    """A key pair on disk, and the trust and signer made from it."""

    def __init__(self, directory: Path, algorithm: str = "ed25519") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.private = directory / "private.pem"
        self.public_pem = generate_key(self.private, algorithm)  # type: ignore[arg-type]
        self.trusted = directory / "trusted.json"
        self.keyid = trust_key(self.trusted, self.public_pem, "a test")

    @property
    def signer(self) -> Signer:
        return load_signer(self.private)

    def trust(self, *, require_signed: bool = True) -> Trust:
        return Trust(load_trusted_keys(self.trusted), require_signed)


@pytest.fixture
def ours(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "theirs")


def strict(root: Path, keys: Keys) -> ArtifactCache:
    return open_local(root, trust=keys.trust(), signer=keys.signer)


def codes(result: CacheResult) -> list[str]:
    return [notice.code for notice in result.notices]


def test_the_signed_bytes_are_those_of_dsse() -> None:
    assert (
        pae("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa-p256"])
def test_a_signed_entry_is_found_again(tmp_path: Path, root: Path, algorithm: str) -> None:
    keys = Keys(tmp_path / algorithm, algorithm)
    strict(root, keys).get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    result = strict(root, keys).get_or_build(CHECKPOINT, Build(), tmp_path / "b")

    assert (result.hit, codes(result)) == (True, [])
    assert result.entry is not None
    assert [one.keyid for one in result.entry.signatures] == [keys.keyid]


def forge(root: Path, blob: Path, content: bytes) -> None:
    """Replace a blob by other bytes of its size, and write the stamp that would vouch for them."""
    assert len(content) == blob.stat().st_size
    blob.unlink()
    blob.write_bytes(content)
    blob.chmod(0o444)
    os.utime(blob, (1, 1))
    status = blob.stat()
    stamp = LocalStore(root).stamp_path(blob.name)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    looks = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "ino": status.st_ino}
    stamp.unlink(missing_ok=True)
    stamp.write_text(json.dumps({**looks, "verified_at": 1795000000}))


@pytest.mark.parametrize("wanted", DOCUMENTS, ids=lambda one: one.kind)
@pytest.mark.parametrize("make", [open_local, open_cache], ids=["open_local", "open_cache"])
def test_a_forged_stamp_does_not_let_other_bytes_pass_where_signatures_are_required(
    root: Path, tmp_path: Path, ours: Keys, wanted: KeyDocument, make: Callable[..., ArtifactCache]
) -> None:
    """Stamps lie unsigned beside the blobs: whoever writes there writes both."""
    trusting = {"trust": ours.trust(), "signer": ours.signer}
    make(root, **trusting).get_or_build(wanted, Build(b"tensors"), tmp_path / "a")
    forge(root, the_blob(root), b"TENSORS" * 100)

    result = make(root, **trusting).get_or_build(wanted, Build(b"right"), tmp_path / "b")

    assert (result.hit, codes(result)) == (False, ["corrupt"])
    assert files_below(result.path) == files_of(b"right")


def test_a_change_to_a_signed_entry_is_a_miss(root: Path, tmp_path: Path, ours: Keys) -> None:
    strict(root, ours).get_or_build(CHECKPOINT, Build(), tmp_path / "a")
    good, trust = the_entry(root).read_bytes(), ours.trust()
    for place in range(0, len(good), 7):
        flipped = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        try:
            trust.check(parse_entry(flipped))
        except Exception:
            continue
        pytest.fail(f"byte {place} can be changed")


def test_without_a_signing_key_nothing_is_stored(root: Path, tmp_path: Path, ours: Keys) -> None:
    result = open_local(root, trust=ours.trust()).get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    assert (result.stored, codes(result)) == (False, ["not-stored"])
    assert result.notices[0].message.endswith("it is not signed")
    assert list(root.glob("ac/*/*/*.json")) == []


def test_where_signatures_are_not_required_unsigned_entries_pass(
    root: Path, tmp_path: Path, ours: Keys, theirs: Keys
) -> None:
    open_local(root).get_or_build(document(1), Build(), tmp_path / "a")
    open_local(root, signer=theirs.signer).get_or_build(document(2), Build(), tmp_path / "b")

    lenient = open_local(root, trust=ours.trust(require_signed=False))

    assert lenient.get_or_build(document(1), Build(), tmp_path / "c").hit
    assert lenient.get_or_build(document(2), Build(), tmp_path / "d").hit


def test_a_known_key_must_prove_itself_even_where_signatures_are_not_required(
    root: Path, tmp_path: Path, ours: Keys, theirs: Keys
) -> None:
    signed = open_local(root, signer=theirs.signer)
    signed.get_or_build(CHECKPOINT, Build(b"evil"), tmp_path / "forged")
    path = the_entry(root)
    damage(path, path.read_bytes().replace(theirs.keyid.encode(), ours.keyid.encode()))

    assert open_local(root, trust=ours.trust(require_signed=False)).find(CHECKPOINT) is None


def test_a_reader_without_keys_uses_signed_entries(root: Path, tmp_path: Path, ours: Keys) -> None:
    strict(root, ours).get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    assert open_local(root).get_or_build(CHECKPOINT, Build(), tmp_path / "b").hit


def test_a_second_signature_stands_beside_the_first(
    root: Path, tmp_path: Path, ours: Keys, theirs: Keys
) -> None:
    entry = known(strict(root, ours).get_or_build(CHECKPOINT, Build(), tmp_path / "a").entry)

    both = theirs.signer.sign(entry)

    assert [one.keyid for one in both.signatures] == [ours.keyid, theirs.keyid]
    ours.trust().check(both)
    theirs.trust().check(both)
    assert theirs.signer.sign(both).signatures == both.signatures[:1] + (
        theirs.signer.sign(entry).signatures[-1],
    )


def test_an_unsigned_rejection_keeps_nobody_who_requires_signatures_from_building(
    root: Path, tmp_path: Path, ours: Keys
) -> None:
    def reject(directory: Path) -> None:
        raise Rejected("no")

    with pytest.raises(Rejected):
        open_local(root).get_or_build(CHECKPOINT, reject, tmp_path / "a")

    assert strict(root, ours).get_or_build(CHECKPOINT, Build(), tmp_path / "b").stored


def test_a_refused_entry_is_not_listed_or_explained(root: Path, tmp_path: Path, ours: Keys) -> None:
    open_local(root).get_or_build(document(1), Build(), tmp_path / "a")
    cache = strict(root, ours)

    assert list(cache.store.list()) == []
    assert cache.explain(document(2)).nearest == ()
    assert cache.explain(document(1)).fault.endswith("is refused: it is not signed")


def test_each_tier_can_refuse_on_its_own(root: Path, tmp_path: Path, ours: Keys) -> None:
    store = TrustedStore(LocalStore(root), ours.trust())
    open_local(root).get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    with pytest.raises(Untrusted, match="it is not signed"):
        store.get(address_of(CHECKPOINT))
    assert store.delete(address_of(CHECKPOINT))
    assert store.get(address_of(CHECKPOINT)) is None


def test_a_private_key_is_private_and_never_overwritten(tmp_path: Path) -> None:
    generate_key(tmp_path / "key.pem")

    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UnusableKeys, match="file exists"):
        generate_key(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o644)
    with pytest.raises(UnusableKeys, match="others can read"):
        load_signer(tmp_path / "key.pem")


@cases("list")
def test_a_list_of_keys_is_read_whole_or_not_at_all(tmp_path: Path, text: str) -> None:
    (tmp_path / "trusted.json").write_text(text)
    with pytest.raises(UnusableKeys):
        load_trusted_keys(tmp_path / "trusted.json")


def test_a_key_named_like_another_is_refused(tmp_path: Path, ours: Keys, theirs: Keys) -> None:
    text = ours.trusted.read_text().replace(ours.keyid, theirs.keyid)
    (tmp_path / "swapped.json").write_text(text)

    with pytest.raises(UnusableKeys, match="is not the digest"):
        load_trusted_keys(tmp_path / "swapped.json")


def test_keys_accumulate(tmp_path: Path, ours: Keys, theirs: Keys) -> None:
    trust_key(ours.trusted, theirs.public_pem)

    assert set(load_trusted_keys(ours.trusted)) == {ours.keyid, theirs.keyid}


def test_without_the_extra_one_is_told_which_it_is(
    tmp_path: Path, ours: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)

    for use in (load_trusted_keys, load_signer, generate_key):
        with pytest.raises(UnusableKeys, match="pip install 'cryptography>=43'"):
            use(ours.trusted)  # type: ignore[operator]


def test_nothing_is_ever_unpickled() -> None:
    """Pickles run code; so nothing here can read them, whatever lies in a store."""
    import artifact_cache

    for path in Path(artifact_cache.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        for word in ("import pickle", "marshal", "shelve", "eval(", "exec("):
            assert word not in text, path


def test_a_public_key_with_more_than_pem_around_it_is_refused(tmp_path: Path) -> None:
    public = generate_key(tmp_path / "key")

    with pytest.raises(UnusableKeys, match="more than PEM"):
        trust_key(tmp_path / "trusted", public + b"\xd9")


def test_a_private_key_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    generate_key(tmp_path / "key")
    pem = (tmp_path / "key").read_bytes().splitlines()
    der = bytearray(base64.b64decode(b"".join(pem[1:-1])))
    der[der.index(bytes((43, 101, 112))) + 1] ^= 0x40  # the key's kind: 1.3.101.112
    body = base64.b64encode(bytes(der))
    (tmp_path / "key").write_bytes(b"\n".join((pem[0], body, pem[-1], b"")))

    with pytest.raises(UnusableKeys, match="not a private key"):
        load_signer(tmp_path / "key")

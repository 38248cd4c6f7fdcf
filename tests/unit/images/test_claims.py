"""Documents of claims: what is proven by a key, and everything else that is not."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from typing import Any

import pytest

from packager.core.documents import NotStrict
from packager.core.image import Blob, Inline, Layer
from packager.images.claims import (
    Claim,
    ClaimKey,
    judge,
    make_claims,
    parse_key,
    read_claims,
    write_claims,
)
from tests.support.cases import cases

KEY = ClaimKey(bytes(range(32)))
HERE = "registry.test:5000/team/model"
CONTENT, DIGEST = "sha256:" + "c" * 64, "sha256:" + "d" * 64
CLAIM = Claim(role="weights", content=CONTENT, size=10240, digest=DIGEST)
DOCUMENT = write_claims(KEY, HERE, [CLAIM])


def changed(fields: str | None, claim: str | None = None) -> bytes:
    """Return the document with other fields, as JSON, of its own or of its claim."""
    document = {**json.loads(DOCUMENT), **json.loads(fields or "{}")}
    if claim:
        document["claims"] = [{**document["claims"][0], **json.loads(claim)}]
    return json.dumps(document).encode()


def test_a_document_is_exactly_this() -> None:
    """Machines with other versions of packager must read it: its form is frozen."""
    payload = (
        '{"claims":[{"content":"sha256:' + "c" * 64 + '","digest":"sha256:' + "d" * 64 + '",'
        '"role":"weights","size":10240}],'
        '"repository":"registry.test:5000/team/model","schema":1}'
    )
    mac = hmac.new(
        bytes(range(32)), b"packager layer claims v1\n" + payload.encode(), hashlib.sha256
    ).hexdigest()

    assert json.loads(DOCUMENT) == {**json.loads(payload), "key": KEY.id, "mac": mac}
    assert KEY.id == "f51edb77d4e89731"


def test_a_claim_is_proven_with_the_key_that_wrote_it() -> None:
    found = read_claims(DOCUMENT)

    assert found.claims == (CLAIM,)
    assert judge(found, KEY, HERE) == "proven"


def test_another_spelling_of_the_same_document_is_proven_too() -> None:
    spelled = json.dumps(json.loads(DOCUMENT), indent=4, sort_keys=True).encode()

    assert judge(read_claims(spelled), KEY, HERE) == "proven"


@cases("forged")
def test_whatever_is_changed_the_document_is_forged(fields: str | None, claim: str | None) -> None:
    assert judge(read_claims(changed(fields, claim)), KEY, HERE) == "forged"


def test_another_key_is_told_from_a_forgery() -> None:
    other = ClaimKey(b"x" * 32)

    assert judge(read_claims(DOCUMENT), other, HERE) == "other-key"
    assert judge(read_claims(DOCUMENT), None, HERE) == "other-key"
    assert judge(read_claims(write_claims(other, HERE, [CLAIM])), KEY, HERE) == "other-key"


@cases("a_claim_of_another_repository_is_not_proven")
def test_a_claim_of_another_repository_is_not_proven(elsewhere: str) -> None:
    assert judge(read_claims(DOCUMENT), KEY, elsewhere) == "other-repository"


@cases("refused")
def test_what_is_no_document_of_claims_is_refused(fields: str | None, claim: str | None) -> None:
    with pytest.raises(NotStrict):
        read_claims(changed(fields, claim))


@cases("damaged", cut=0)
def test_a_damaged_document_is_refused(document: bytes, cut: int) -> None:
    """INNER stands for our own document without its braces."""
    whole = document.replace(b"INNER", DOCUMENT[1:-1])
    with pytest.raises(NotStrict):
        read_claims(whole[: len(whole) - cut])


def test_too_many_claims_are_refused() -> None:
    claims = json.loads(DOCUMENT)["claims"] * 513

    with pytest.raises(NotStrict):
        read_claims(changed(json.dumps({"claims": claims})))


def layer(**changes: Any) -> Layer:
    made = Layer(role="weights", blob=Blob((Inline(b"x" * 512),)), content=CONTENT, digest=DIGEST)
    return replace(made, **changes)


def test_finished_layers_of_known_content_are_claimed() -> None:
    claim = Claim(role="weights", content=CONTENT, size=512, digest=DIGEST)

    assert make_claims([layer(), layer()]) == (claim,)


@cases("other_layers_are_not_claimed")
def test_other_layers_are_not_claimed(changes: dict[str, Any]) -> None:
    assert make_claims([layer(**changes)]) == ()


def test_equal_claims_give_equal_documents() -> None:
    layers = [layer(), layer(role="draft", digest="sha256:" + "a" * 64)]

    ways = {write_claims(KEY, HERE, make_claims(order)) for order in (layers, layers[::-1])}

    assert len(ways) == 1


def test_a_key_is_spelled_so_that_it_can_be_read_again() -> None:
    assert KEY.spelled() == "packager-claim-key-1:" + bytes(range(32)).hex()
    assert parse_key(f" {KEY.spelled()}\n") == KEY


@cases("key")
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="it is not packager-claim-key-1: and 64") as raised:
        parse_key(text)

    assert not text or text in ("packager-claim-key-1:",) or text not in str(raised.value)


def test_a_key_shows_its_secret_nowhere() -> None:
    assert KEY.secret.hex() not in repr(KEY) + KEY.id
    assert repr(KEY) == "ClaimKey()"

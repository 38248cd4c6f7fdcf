"""Signatures, made by botocore's own signer and tampered with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from packager.sagemaker.refusals import ApiRefusal
from packager.serve.refusals import (
    IncompleteSignature,
    InvalidSignature,
    MissingSignature,
    UnknownKey,
)
from packager.serve.sigv4 import AccessKey, Claim, SignedRequest, Verifier
from tests.support.cases import cases

ALICE = AccessKey("ALICE0001", "3e9f2b71c0d84a5596e1f7d2", "alice")
BOB = AccessKey("BOB0001", "77b0c9d1e3f54f6a8b2c4d5e", "bob")
TARGET = "SageMaker.DescribeOptimizationJob"
BODY = b'{"OptimizationJobName":"one"}'
SAGEMAKER = frozenset({"sagemaker"})


def verifier(**changes: object) -> Verifier:
    given = Verifier(keys={ALICE.id: ALICE, BOB.id: BOB}, region="us-east-1")
    return replace(given, **changes)  # type: ignore[arg-type]


def signed(
    *,
    key: AccessKey = ALICE,
    method: str = "POST",
    url: str = "http://127.0.0.1:8470/",
    body: bytes = BODY,
    region: str = "us-east-1",
    service: str = "sagemaker",
    token: str | None = None,
    headers: Sequence[tuple[str, str]] = (
        ("X-Amz-Target", TARGET),
        ("Content-Type", "application/x-amz-json-1.1"),
    ),
) -> SignedRequest:
    request = AWSRequest(method=method, url=url, data=body, headers=dict(headers))
    SigV4Auth(Credentials(key.id, key.secret, token), service, region).add_auth(request)
    sent = request.prepare()
    found = [("Host", "127.0.0.1:8470")]
    found += [(name, _text(value)) for name, value in sent.headers.items()]
    return SignedRequest(
        method=method,
        target=sent.url.removeprefix("http://127.0.0.1:8470") or "/",
        headers=found,
        body=body,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def verify(request: SignedRequest, checks: Verifier | None = None) -> Claim:
    checks = checks or verifier()
    claim = checks.claim(request.headers, SAGEMAKER)
    checks.prove(claim, request)
    return claim


def with_header(request: SignedRequest, name: str, value: str | None) -> SignedRequest:
    """Replace a header, or take it away."""
    kept = [pair for pair in request.headers if pair[0].lower() != name.lower()]
    return replace(request, headers=kept + ([(name, value)] if value is not None else []))


def authorization(request: SignedRequest) -> str:
    return dict(request.headers)["Authorization"]


def edited(request: SignedRequest, old: str, new: str) -> SignedRequest:
    """Change a part of the authorization that is there."""
    before = authorization(request)
    assert old in before
    return with_header(request, "Authorization", before.replace(old, new, 1))


def test_what_botocore_signs_is_accepted() -> None:
    assert verify(signed()).key == ALICE
    assert verify(signed(key=BOB)).key == BOB


@pytest.mark.parametrize(*cases(__file__, "urls"))
def test_paths_and_queries_are_canonical_as_botocore_has_them(url: str) -> None:
    verify(signed(url=url, headers=()))


@given(st.binary(max_size=300), st.text(st.characters(codec="ascii", categories=["L", "N", "P"])))
def test_every_body_and_value_is_signed_alike(body: bytes, value: str) -> None:
    headers = (("X-Amz-Target", TARGET), ("X-Amz-Meta", f"a  {value} \t b"))
    verify(signed(body=body, headers=headers))


TAMPERED = {
    "method": lambda request: replace(request, method="GET"),
    "path": lambda request: replace(request, target="/endpoints/x/invocations"),
    "query": lambda request: replace(request, target="/?a=1"),
    "body": lambda request: replace(request, body=BODY.replace(b"one", b"two")),
    "no body": lambda request: replace(request, body=b""),
    "host": lambda request: with_header(request, "Host", "127.0.0.1:9999"),
    "target": lambda request: with_header(
        request, "X-Amz-Target", "SageMaker.DeleteOptimizationJob"
    ),
    "content type": lambda request: with_header(request, "Content-Type", "text/plain"),
    "date": lambda request: with_header(
        request,
        "X-Amz-Date",
        f"{datetime.now(UTC) + timedelta(seconds=60):%Y%m%dT%H%M%SZ}",
    ),
    "signature": lambda request: with_header(
        request, "Authorization", authorization(request)[:-64] + "0" * 64
    ),
    "key": lambda request: edited(request, ALICE.id, BOB.id),
    "payload hash": lambda request: with_header(request, "X-Amz-Content-Sha256", "0" * 64),
}


@pytest.mark.parametrize("part", TAMPERED)
def test_a_request_that_was_changed_on_the_way_is_refused(part: str) -> None:
    request = signed()
    with pytest.raises((InvalidSignature, IncompleteSignature)):
        verify(TAMPERED[part](request))

    verify(request)


def test_another_s_secret_signs_nothing() -> None:
    with pytest.raises(InvalidSignature, match="does not match"):
        verify(signed(key=AccessKey(ALICE.id, BOB.secret)))


def test_an_unknown_key_is_refused_before_the_body_is_needed() -> None:
    request = signed(key=AccessKey("MALLORY1", ALICE.secret))

    with pytest.raises(UnknownKey):
        verifier().claim(request.headers, SAGEMAKER)


def test_a_session_token_is_refused() -> None:
    with pytest.raises(UnknownKey):
        verify(signed(token="of-a-session"))


@pytest.mark.parametrize(
    ("shift_s", "refusal"),
    [(-301, "signature expired"), (-299, ""), (299, ""), (301, "not yet current")],
)
def test_clocks_may_differ_by_five_minutes(shift_s: int, refusal: str) -> None:
    request = signed()
    date = dict(request.headers)["X-Amz-Date"]
    at = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    checks = verifier(now=lambda: at - timedelta(seconds=shift_s))

    if refusal:
        with pytest.raises(InvalidSignature, match=refusal):
            verify(request, checks)
    else:
        verify(request, checks)


def test_region_and_service_are_those_of_this_server() -> None:
    with pytest.raises(InvalidSignature, match="region 'us-east-1'"):
        verify(signed(region="eu-west-1"))
    with pytest.raises(InvalidSignature, match="service sagemaker"):
        verify(signed(service="s3"))


def test_services_without_regions_are_signed_for_the_first() -> None:
    checks = verifier(region="eu-west-1")
    request = signed(service="iam")

    checks.prove(checks.claim(request.headers, {"iam", "sts"}), request)
    with pytest.raises(InvalidSignature, match="region"):
        verify(signed(), checks)


@pytest.mark.parametrize("name", ["X-Amz-Target", "X-Amz-Extra", "X-Amzn-SageMaker-Target-Variant"])
def test_a_header_with_a_meaning_cannot_be_added_unsigned(name: str) -> None:
    request = signed(headers=())

    with pytest.raises(IncompleteSignature, match=name.lower()):
        verify(with_header(request, name, "x"))


@pytest.mark.parametrize("name", ["Content-Type", "Accept"])
def test_what_a_container_is_told_has_to_be_signed(name: str) -> None:
    request = signed(url="http://127.0.0.1:8470/endpoints/e/invocations", headers=())

    with pytest.raises(IncompleteSignature, match=f"{name.lower()!r} has to be signed"):
        verify(with_header(request, name, "text/csv"))

    verify(with_header(request, "Accept", "*/*"))  # of programs that ask for nothing


def test_headers_that_proxies_add_need_no_signature() -> None:
    request = with_header(signed(), "X-Forwarded-For", "10.0.0.1")
    request = with_header(request, "X-Amzn-Trace-Id", "Root=1-2")

    verify(with_header(request, "amz-sdk-invocation-id", "1"))


@pytest.mark.parametrize(
    "name", ["Authorization", "X-Amz-Date", "X-Amz-Target", "Host", "Content-Type"]
)
def test_a_header_that_is_there_twice_is_refused(name: str) -> None:
    request = signed()
    value = dict(request.headers)[name]
    doubled = replace(request, headers=[*request.headers, (name.lower(), value)])

    with pytest.raises(IncompleteSignature):
        verify(doubled)


def test_a_request_without_authorization_is_told_so() -> None:
    with pytest.raises(MissingSignature):
        verify(with_header(signed(), "Authorization", None))


def test_a_signature_in_the_address_counts_for_nothing() -> None:
    request = with_header(signed(), "Authorization", None)
    query = "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=" + "0" * 64

    with pytest.raises(MissingSignature):
        verify(replace(request, target=f"/{query}"))


@pytest.mark.parametrize(*cases(__file__, "forms"))
def test_an_authorization_of_another_form_is_refused(old: str, new: str) -> None:
    with pytest.raises(IncompleteSignature):
        verify(edited(signed(), old, new))


@pytest.mark.parametrize("date", ["", "20260101", "20261399T000000Z", "20260101T000000", "²"])
def test_a_date_of_another_form_is_refused(date: str) -> None:
    with pytest.raises(IncompleteSignature):
        verify(with_header(signed(), "X-Amz-Date", date))


def test_the_date_of_the_credential_is_that_of_the_request() -> None:
    request = signed()
    day = dict(request.headers)["X-Amz-Date"][:8]

    with pytest.raises(InvalidSignature, match="date of the credential"):
        verify(edited(request, f"/{day}/", "/20200101/"))


def test_an_unsigned_payload_is_refused() -> None:
    request = signed(
        headers=(("X-Amz-Target", TARGET), ("X-Amz-Content-SHA256", "UNSIGNED-PAYLOAD"))
    )

    with pytest.raises(InvalidSignature, match="body"):
        verify(request)


def test_a_payload_hash_of_the_right_body_is_fine() -> None:
    digest = hashlib.sha256(BODY).hexdigest()

    verify(signed(headers=(("X-Amz-Target", TARGET), ("X-Amz-Content-SHA256", digest))))


@given(st.text(max_size=200))
def test_any_authorization_ends_in_a_refusal(text: str) -> None:
    with pytest.raises(ApiRefusal):
        verify(with_header(signed(), "Authorization", text))


def test_no_secret_is_in_what_is_printed_of_a_key() -> None:
    assert ALICE.secret not in repr(ALICE) + repr(verifier()) + repr(verify(signed()))

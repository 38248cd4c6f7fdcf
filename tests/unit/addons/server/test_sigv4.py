"""Signatures, made by botocore's own signer and tampered with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal
from packager.addons.server.refusals import (
    InvalidSignature,
)
from packager.addons.server.sigv4 import AccessKey, SignatureClaim, SignedRequest, Verifier
from tests.support.cases import cases
from tests.support.refusals import raises_code

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


def verify(request: SignedRequest, checks: Verifier | None = None) -> SignatureClaim:
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


@given(st.binary(max_size=300), st.text(st.characters(codec="ascii", categories=["L", "N", "P"])))
def test_every_body_and_value_is_signed_alike(body: bytes, value: str) -> None:
    headers = (("X-Amz-Target", TARGET), ("X-Amz-Meta", f"a  {value} \t b"))
    verify(signed(body=body, headers=headers))


@cases("requests")
def test_what_was_signed_is_what_counts(case: dict[str, Any]) -> None:
    """Refused for the reason that is stated, or accepted."""
    request = signed(**_keyed(case.get("signed", {})))
    for name, value in case.get("sets", {}).items():
        request = with_header(request, name, value or None)
    for old, new in case.get("edits", ()):
        request = edited(request, old, new)
    changed = {
        name: case["is"][name] for name in ("method", "target") if name in case.get("is", {})
    }
    request = replace(request, **changed)
    if "body" in case.get("is", {}):
        request = replace(request, body=case["is"]["body"].encode())

    if "refused" not in case:
        verify(request)
        return
    with raises_code(case["refused"], match=case.get("says")):
        verify(request)


def _keyed(given: dict[str, Any]) -> dict[str, Any]:
    """Return what is signed, with its headers in pairs and the key of somebody else's secret."""
    pairs = {"headers": list(given["headers"].items())} if "headers" in given else {}
    other = {"key": AccessKey(ALICE.id, BOB.secret)} if given.get("secret") == "of another" else {}
    return {name: one for name, one in given.items() if name != "secret"} | pairs | other


def test_a_request_of_another_minute_or_signature_is_refused() -> None:
    request, later = signed(), datetime.now(UTC) + timedelta(seconds=60)
    forged = authorization(request)[:-64] + "0" * 64

    for name, value in (("X-Amz-Date", f"{later:%Y%m%dT%H%M%SZ}"), ("Authorization", forged)):
        with pytest.raises(InvalidSignature):
            verify(with_header(request, name, value))


def test_an_unknown_key_is_refused_before_the_body_is_needed() -> None:
    request = signed(key=AccessKey("MALLORY1", ALICE.secret))

    with raises_code("UnrecognizedClientException"):
        verifier().claim(request.headers, SAGEMAKER)


@cases("clocks_may_differ_by_five_minutes")
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


def test_services_without_regions_are_signed_for_the_first() -> None:
    checks = verifier(region="eu-west-1")
    request = signed(service="iam")

    checks.prove(checks.claim(request.headers, {"iam", "sts"}), request)
    with pytest.raises(InvalidSignature, match="region"):
        verify(signed(), checks)


@cases("a_header_that_is_there_twice_is_refused")
def test_a_header_that_is_there_twice_is_refused(name: str) -> None:
    request = signed()
    value = dict(request.headers)[name]
    doubled = replace(request, headers=[*request.headers, (name.lower(), value)])

    with raises_code("IncompleteSignatureException"):
        verify(doubled)


def test_the_date_of_the_credential_is_that_of_the_request() -> None:
    request = signed()
    day = dict(request.headers)["X-Amz-Date"][:8]

    with pytest.raises(InvalidSignature, match="date of the credential"):
        verify(edited(request, f"/{day}/", "/20200101/"))


@given(st.text(max_size=200))
def test_any_authorization_ends_in_a_refusal(text: str) -> None:
    with pytest.raises(ApiRefusal):
        verify(with_header(signed(), "Authorization", text))


def test_no_secret_is_in_what_is_printed_of_a_key() -> None:
    assert ALICE.secret not in repr(ALICE) + repr(verifier()) + repr(verify(signed()))

"""SigV4, AWS's signatures: who signed a request, and whether it was changed since.

Only the `Authorization` header counts: signatures in the query of an address are refused, as are
session tokens, since keys here are configured and long-lived.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from packager.addons.server.refusals import (
    InvalidSignature,
    incomplete_signature,
    missing_signature,
    unknown_key,
)

MAX_SKEW = timedelta(minutes=5)  # as of AWS

_ALGORITHM = "AWS4-HMAC-SHA256"
_END = "aws4_request"
_FIELDS = ("Credential", "SignedHeaders", "Signature")
_DATE = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_HEADER_NAMES = re.compile(r"[a-z0-9-]+(?:;[a-z0-9-]+)*")
# What changes the meaning of a request must be signed where it is there.
_MEANINGFUL = ("x-amz-", "x-amzn-sagemaker-")


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key that requests are signed with."""

    id: str
    secret: str = field(repr=False)
    name: str = ""  # whose it is, in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request as it was received."""

    method: str
    target: str  # path and query, as in the request line
    headers: Sequence[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureClaim:
    """A request's claims about its signature, before they are verified."""

    key: AccessKey
    scope: tuple[str, str, str]  # date, region, service
    date: str
    headers: tuple[str, ...]
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Checks signatures against configured keys."""

    keys: Mapping[str, AccessKey]
    region: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def claim(
        self, headers: Sequence[tuple[str, str]], services: Collection[str]
    ) -> SignatureClaim:
        """Read a request's claims about its signature; enough to refuse it without its body."""
        found = _one_header(headers, "authorization")
        if found is None:
            raise missing_signature("missing authentication token")
        fields = _read_authorization(found)
        parts = fields["Credential"].split("/")
        if len(parts) != 5 or parts[4] != _END:
            raise incomplete_signature("the credential is not ID/DATE/REGION/SERVICE/aws4_request")
        key = self.keys.get(parts[0])
        if key is None or _one_header(headers, "x-amz-security-token") is not None:
            raise unknown_key("the security token included in the request is invalid")
        date = _one_header(headers, "x-amz-date") or ""
        claim = SignatureClaim(
            key=key,
            scope=(parts[1], parts[2], parts[3]),
            date=date,
            headers=tuple(fields["SignedHeaders"].split(";")),
            signature=fields["Signature"],
        )
        self._check_date(claim)
        self._check_scope(claim, services)
        _check_signed_headers(claim, headers)
        return claim

    def prove(self, claim: SignatureClaim, request: SignedRequest) -> None:
        """Raise `InvalidSignature` unless the key of the claim signed this request."""
        digest = hashlib.sha256(request.body).hexdigest()
        stated = _one_header(request.headers, "x-amz-content-sha256")
        if stated is not None and stated != digest:
            raise InvalidSignature("the body is not the one that was signed")
        text = _canonical_request(claim, request, digest)
        expected = sign(claim, text)
        if not hmac.compare_digest(expected, claim.signature):
            raise InvalidSignature(
                "the request signature we calculated does not match the signature you provided",
                hint="check your access key and its secret",
            )

    def _check_date(self, claim: SignatureClaim) -> None:
        if not _DATE.fullmatch(claim.date):
            raise incomplete_signature("the request has no X-Amz-Date such as 20260131T235959Z")
        try:
            signed = datetime.strptime(claim.date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise incomplete_signature("the request's X-Amz-Date is not a date") from None
        now = self.now()
        if signed < now - MAX_SKEW:
            raise InvalidSignature(
                f"signature expired: {claim.date} is earlier than 5 minutes before "
                f"{now:%Y%m%dT%H%M%SZ}",
                hint="set the clock of your machine",
            )
        if signed > now + MAX_SKEW:
            raise InvalidSignature(
                f"signature not yet current: {claim.date} is later than 5 minutes after "
                f"{now:%Y%m%dT%H%M%SZ}",
                hint="set the clock of your machine",
            )

    def _check_scope(self, claim: SignatureClaim, services: Collection[str]) -> None:
        date, region, service = claim.scope
        if date != claim.date[:8]:
            raise InvalidSignature("the date of the credential is not that of X-Amz-Date")
        # Services without regions are signed for the first one.
        if region != self.region and (region != "us-east-1" or service not in ("iam", "sts")):
            raise InvalidSignature(
                f"the credential should be scoped to the region {self.region!r}",
                hint=f"set AWS_REGION={self.region}",
            )
        if service not in services:
            raise InvalidSignature(
                "the credential should be scoped to the service " + " or ".join(sorted(services))
            )


def sign(claim: SignatureClaim, canonical_request: str) -> str:
    """Return the signature of a canonical request."""
    scope = "/".join((*claim.scope, _END))
    digest = hashlib.sha256(canonical_request.encode("utf-8", "surrogateescape")).hexdigest()
    text = "\n".join((_ALGORITHM, claim.date, scope, digest))
    key = f"AWS4{claim.key.secret}".encode()
    for part in (*claim.scope, _END):
        key = hmac.digest(key, part.encode("utf-8", "surrogateescape"), "sha256")
    return hmac.digest(key, text.encode("utf-8", "surrogateescape"), "sha256").hex()


def _read_authorization(header: str) -> dict[str, str]:
    algorithm, _, rest = header.partition(" ")
    if algorithm != _ALGORITHM:
        raise incomplete_signature(f"the authorization is not of {_ALGORITHM}")
    fields: dict[str, str] = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        if name not in _FIELDS or name in fields or not value:
            raise incomplete_signature(
                "the authorization has other fields than " + ", ".join(_FIELDS)
            )
        fields[name] = value
    if len(fields) != len(_FIELDS):
        raise incomplete_signature("the authorization lacks one of " + ", ".join(_FIELDS))
    if not _SIGNATURE.fullmatch(fields["Signature"]):
        raise incomplete_signature("the signature is not 64 hexadecimal digits")
    if not _HEADER_NAMES.fullmatch(fields["SignedHeaders"]):
        raise incomplete_signature("the signed headers are not names in lower case")
    return fields


def _check_signed_headers(claim: SignatureClaim, headers: Sequence[tuple[str, str]]) -> None:
    names = [name.lower() for name, _ in headers]
    if list(claim.headers) != sorted(set(claim.headers)):
        raise incomplete_signature("the signed headers are not in order")
    needed = {"host", "x-amz-date"} | {name for name in names if name.startswith(_MEANINGFUL)}
    # Containers receive these headers, so they must be signed; a wildcard has no effect.
    needed |= {
        name.lower()
        for name, value in headers
        if name.lower() in ("content-type", "accept") and value.strip() != "*/*"
    }
    if missing := needed - set(claim.headers):
        raise incomplete_signature(f"the header {min(missing)!r} has to be signed")
    for name in claim.headers:
        if names.count(name) != 1:
            raise incomplete_signature(f"the signed header {name!r} is not there once")


def _canonical_request(claim: SignatureClaim, request: SignedRequest, digest: str) -> str:
    path, _, query = request.target.partition("?")
    values = {name.lower(): " ".join(value.split()) for name, value in request.headers}
    return "\n".join(
        (
            request.method,
            quote(path, safe="/~", errors="surrogateescape"),
            _canonical_query(query),
            *(f"{name}:{values[name]}" for name in claim.headers),
            "",
            ";".join(claim.headers),
            digest,
        )
    )


def _canonical_query(query: str) -> str:
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&")) if query else []
    return "&".join(f"{name}={value}" for name, value in pairs)


def _one_header(headers: Sequence[tuple[str, str]], name: str) -> str | None:
    found = [value for each, value in headers if each.lower() == name]
    if len(found) > 1:
        raise incomplete_signature(f"the header {name!r} is there more than once")
    return found[0] if found else None

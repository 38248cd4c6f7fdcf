"""Authorization at one registry: Basic, and Bearer tokens from its token service.

Credentials are sent only after a 401, to the registry's own origin and its token service.  Tokens
are cached by scope and renewed before they expire.  Safe to use from several threads.
"""

from __future__ import annotations

import base64
import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit, urlunsplit

from packager.core.documents import NotStrict, parse_object
from packager.core.errors import AccessDenied
from packager.core.remote.refusals import read_error
from packager.core.text import remember_secret
from packager.images.registry.credential import Credentials, FindCredentials
from packager.images.registry.failures import (
    RegistryBusy,
    UnexpectedAnswer,
    credentials_missing,
    credentials_refused,
)
from packager.images.registry.origins import origin_of
from packager.images.registry.transport import TRANSIENT, Response, Transport

Access = frozenset[tuple[str, str]]  # (repository, action)

NOTHING: Access = frozenset()
_CLIENT_ID = "packager"
_LONGEST_ANSWER = 1024 * 1024
_DEFAULT_LIFETIME_S = 60.0  # of the token specification
_USED_PART_OF_LIFETIME = 0.8  # a token must outlive the request that it starts

_LONGEST_CHALLENGE = 16 * 1024  # characters of a header; a real one has some hundred
_LONGEST_TOKEN = 32 * 1024  # it has to fit into a header
_LONGEST_LIFETIME_S = 86400.0
_WORD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)  # `token` of RFC 9110, section 5.6.2
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*[ \t]*(?=,|$)", re.ASCII)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_UNQUOTED = re.compile(r'[^\s,"]+')  # more than RFC 9110 allows: addresses come without quotes
_TOKEN = re.compile(r"[!-~]+", re.ASCII)


def pull(repository: str) -> Access:
    """The right to read a repository."""
    return frozenset({(repository, "pull")})


def push(repository: str) -> Access:
    """The right to read and write a repository."""
    return frozenset({(repository, "pull"), (repository, "push")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """Parsed `WWW-Authenticate` challenge of a registry."""

    scheme: str  # `basic` or `bearer`
    realm: str = ""
    service: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    value: str = field(repr=False)
    usable_until: float


def parse_challenges(header: str) -> list[Challenge]:
    """Parse a `WWW-Authenticate` header, which may hold several challenges (RFC 9110, 11.6.1).

    Time is linear in the header's length: each step consumes what it looked at.  The part before a
    syntax error counts, the rest is ignored.
    """
    if len(header) > _LONGEST_CHALLENGE:
        return []
    found: list[tuple[str, dict[str, str]]] = []
    at = _skip(header, 0, " \t,")
    while word := _WORD.match(header, at):
        at = word.end()
        after = _skip(header, at, " \t")
        if header[after : after + 1] == "=" and found:
            at = _skip(header, after + 1, " \t")
            value = _QUOTED.match(header, at) or _UNQUOTED.match(header, at)
            if value is None:
                break
            text = re.sub(r"\\(.)", r"\1", value[1]) if value.re is _QUOTED else value[0]
            found[-1][1].setdefault(word[0].lower(), text)
            at = value.end()
        else:
            found.append((word[0].lower(), {}))
            at = after
            if named := _TOKEN68.match(header, at):
                at = named.end()
        at = _skip(header, at, " \t,")
    return [
        Challenge(
            scheme=scheme,
            realm=parameters.get("realm", ""),
            service=parameters.get("service", ""),
            scope=parameters.get("scope", ""),
        )
        for scheme, parameters in found
    ]


def _skip(header: str, at: int, characters: str) -> int:
    """Return the first place from `at` on that holds none of the characters."""
    return len(header) - len(header[at:].lstrip(characters))


class Authenticator:
    """Answers one registry's challenges."""

    def __init__(
        self,
        host: str,
        transport: Transport,
        find: FindCredentials,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._transport = transport
        self._find = find
        self._clock = clock
        self._lock = threading.RLock()
        self._challenge: Challenge | None = None
        self._credentials: dict[str, Credentials | None] = {}  # by name: `HOST/REPOSITORY`
        self._tokens: dict[Access, _Token] = {}
        self._wear_out = False  # tokens are refused before they expire, while a body is sent

    @property
    def scheme(self) -> str:
        """`basic`, `bearer`, or "" before the registry's first challenge."""
        return self._challenge.scheme if self._challenge else ""

    @property
    def service(self) -> str:
        """The registry's name at its token service; "" before its first challenge."""
        return self._challenge.service if self._challenge else ""

    def basic(self, access: Access) -> str:
        """Return user and password as an `Authorization` value; empty where there are none."""
        with self._lock:
            known = self._current(access)
        return _basic(known) if known and known.user else ""

    def header(self, access: Access, *, for_body: bool = False) -> str:
        """Return the `Authorization` value for `access`; empty if none is required.

        A body cannot be sent again when its token is refused.  After that has
        happened once, each body gets a token that no other request uses up.
        """
        with self._lock:
            if self._challenge is None:
                return ""
            if self._challenge.scheme == "basic":
                known = self._current(access)
                return _basic(known) if known else ""
            is_own = for_body and self._wear_out
            token = None if is_own else self._cached(access)
            return f"Bearer {(token or self._fetch(access, (), keep=not is_own)).value}"

    def answer(
        self,
        header: str,
        access: Access,
        refused: str,
        *,
        own: bool = False,
        for_body: bool = False,
    ) -> str:
        """Return the headers to send after a 401 to `refused`; empty when there are no better ones.

        Another thread may have renewed the token meanwhile: that one is returned,
        but with `own`, which always gets one that no other request uses.
        `for_body` notes that a token was refused while a body was sent.
        Raises `AccessDenied` when the registry wants credentials that we lack.
        """
        with self._lock:
            challenge = self._learn(header)
            if challenge is None:
                return ""
            if challenge.scheme == "basic":
                known = self._current(access)
                if known is None:
                    raise credentials_missing(self._host, describe(access))
                if refused == _basic(known) and known.renew_at < math.inf:
                    known = self._look_up(access) or known
                better = _basic(known)
                return "" if better == refused else better
            for allowed, old in list(self._tokens.items()):
                if refused == f"Bearer {old.value}":
                    del self._tokens[allowed]
            self._wear_out = self._wear_out or for_body
            token = None if own else self._cached(access)
            token = token or self._fetch(access, challenge.scope.split(), keep=not own)
            return f"Bearer {token.value}"

    def doubt(self) -> None:
        """Note that the connection of a body was reset: what refused its token may be lost.

        A registry that refuses a body without reading it closes the connection on bytes that are
        on their way, and the reset that follows may overtake its answer (RFC 9112, 9.6).
        """
        with self._lock:
            self._wear_out = True

    def learn(self, header: str) -> None:
        """Store the authentication challenge of a registry."""
        with self._lock:
            self._learn(header)

    def denied(self, access: Access, codes: str) -> AccessDenied | AccessDenied:
        """The error for a refusal that stays."""
        with self._lock:
            known = self._current(access) if self._challenge else None
        if known is None:
            return credentials_missing(self._host, describe(access))
        return credentials_refused(self._host, describe(access), _who(known), codes)

    def _learn(self, header: str) -> Challenge | None:
        offered = {challenge.scheme: challenge for challenge in parse_challenges(header)}
        challenge = offered.get("bearer") or offered.get("basic")
        if challenge is not None:
            self._challenge = challenge
        return challenge

    def _current(self, access: Access) -> Credentials | None:
        """The credentials for a repository; those of AWS do not last for ever."""
        name = self._name_of(access)
        known = self._credentials.get(name)
        if name not in self._credentials or (known and known.renew_at <= time.time()):
            known = self._look_up(access)
        return known

    def _look_up(self, access: Access) -> Credentials | None:
        name = self._name_of(access)
        found = self._credentials[name] = self._find(name)
        return found

    def _name_of(self, access: Access) -> str:
        """Return what credentials are looked up for: the repository that is written, or read."""
        repositories = _by_weight(access)
        return f"{self._host}/{repositories[0]}" if repositories else self._host

    def _cached(self, access: Access) -> _Token | None:
        now = self._clock()
        for allowed, token in self._tokens.items():
            if access <= allowed and now < token.usable_until:
                return token
        return None

    def _fetch(self, access: Access, also: Iterable[str], *, keep: bool = True) -> _Token:
        """Request a token, and with `keep` store it for other requests.

        `also` are scopes the registry named itself: it may know the repository
        under another name than we do.
        """
        assert self._challenge is not None
        known = self._current(access)
        if known and known.registry_token:
            remember_secret(known.registry_token)
            return _Token(value=known.registry_token, usable_until=math.inf)
        scopes = list(dict.fromkeys([*_scopes(access), *also]))
        answer = self._ask_token_service(self._challenge, scopes, known)
        body = answer.read(_LONGEST_ANSWER)
        service = origin_of(answer.url).authority
        if answer.status in (401, 403):
            raise self.denied(access, read_error(body).shown)
        if answer.status in TRANSIENT:
            raise RegistryBusy(service, answer.status, "")
        try:
            document = parse_object(body)
        except NotStrict:
            document = {}
        value = document.get("token") or document.get("access_token")
        if not _is_sendable(value):
            # The message quotes nothing of the answer: any part of it may be the token.
            raise UnexpectedAnswer(
                service, "a request for a token", f"{answer.status} without a token"
            )
        remember_secret(str(value))
        lifetime = _lifetime_s(document.get("expires_in")) * _USED_PART_OF_LIFETIME
        token = _Token(value=str(value), usable_until=self._clock() + lifetime)
        if keep:
            self._tokens[access] = token
        return token

    def _ask_token_service(
        self, challenge: Challenge, scopes: list[str], known: Credentials | None
    ) -> Response:
        self._transport.check(challenge.realm, self._host)
        fields = [("service", challenge.service)] if challenge.service else []
        if known and known.identity_token:
            remember_secret(known.identity_token)
            form = [
                ("grant_type", "refresh_token"),
                ("client_id", _CLIENT_ID),
                *fields,
                ("scope", " ".join(scopes)),
                ("refresh_token", known.identity_token),
            ]
            answer = self._transport.call(
                "POST",
                challenge.realm,
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                body=urlencode(form).encode(),
            )
            # Not every token service takes a POST: go-containerregistry, transport/bearer.go.
            if answer.status not in (404, 405, 501) or not known.user:
                return answer
            answer.close()
        fields += [("client_id", _CLIENT_ID), *(("scope", scope) for scope in scopes)]
        if known:
            fields.append(("account", known.user))
        parts = urlsplit(challenge.realm)
        query = "&".join(filter(None, (parts.query, urlencode(fields))))
        return self._transport.call(
            "GET",
            urlunsplit(parts._replace(query=query)),
            headers={"Authorization": _basic(known)} if known else {},
        )


def _is_sendable(token: object) -> bool:
    """Whether a token can stand in a header: printable ASCII, no blank, of bounded length."""
    return (
        isinstance(token, str)
        and len(token) <= _LONGEST_TOKEN
        and _TOKEN.fullmatch(token) is not None
    )


def _lifetime_s(stated: object) -> float:
    """Return a token's stated lifetime in seconds; the specification's default if it is invalid."""
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not stated > 0:
        return _DEFAULT_LIFETIME_S
    return min(float(stated), _LONGEST_LIFETIME_S)


def describe(access: Access) -> str:
    """Describe the requested access in words: `to push to 'team/model'`."""
    pushed = sorted(repository for repository, action in access if action == "push")
    if pushed:
        return f"to push to {pushed[0]!r}"
    pulled = sorted(repository for repository, _ in access)
    return f"to pull from {pulled[0]!r}" if pulled else "to use the registry"


def _by_weight(access: Access) -> list[str]:
    """Return the repositories, the one that is written to first: some services read no further."""
    return sorted(
        {repository for repository, _ in access}, key=lambda one: ((one, "push") not in access, one)
    )


def _scopes(access: Access) -> list[str]:
    return [
        f"repository:{repository}:{','.join(sorted(a for r, a in access if r == repository))}"
        for repository in _by_weight(access)
    ]


def _basic(credentials: Credentials) -> str:
    remember_secret(credentials.password)
    pair = f"{credentials.user}:{credentials.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _who(credentials: Credentials) -> str:
    return credentials.user or "of the identity token"

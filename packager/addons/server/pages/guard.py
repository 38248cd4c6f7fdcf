"""Access to the pages: only from this machine, and forms only from our own pages.

Pages have no sign-in: they answer only this machine. Its browser also runs untrusted pages, which
may neither read ours nor post to them:

- a name that a stranger's DNS points here is refused (only `localhost` and addresses are hosts);
- what changes something needs the token of the browser's own session, and comes from our origin.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web
from multidict import MultiDict

from packager.addons.server.bodies import read_limited
from packager.core.errors import PackagerError

COOKIE = "packager_ui"
TOKEN_FIELD = "token"
MOST_FORM_BYTES = 256 * 1024
FORM_S = 30.0  # until a form has arrived
_MOST_FIELDS = 1000
_SESSION_LENGTH = 43  # of `token_urlsafe(32)`


class PageRefused(PackagerError):
    """A request to a page that is not answered."""

    exit_code = 2

    def __init__(self, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class FormGuard:
    """Checks requests; its key is new for each server process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def check(self, request: web.Request) -> None:
        """Refuse clients on other machines, and host names of other sites."""
        if not _is_loopback(request.remote or ""):
            raise PageRefused(
                "the pages answer only this machine",
                status=403,
                hint="forward the port: `ssh -L 8080:localhost:PORT HOST`, then open "
                "http://localhost:8080/ui",
            )
        if not _is_address(_host_of(request.host)):
            raise PageRefused(
                f"the pages are not served as {request.host[:200]!r}",
                status=403,
                hint="open them at localhost, or at an address",
            )

        if is_foreign(request) and (
            request.headers.get("Sec-Fetch-Mode"),
            request.headers.get("Sec-Fetch-Dest"),
        ) != ("navigate", "document"):
            raise PageRefused("the pages are not parts of another site's", status=403)

    def session(self, request: web.Request) -> str:
        """Return the browser's session, or a new one where it has none."""
        found = request.cookies.get(COOKIE, "")
        is_ours = len(found) == _SESSION_LENGTH and found.isascii()
        return found if is_ours else secrets.token_urlsafe(32)

    def token(self, session: str) -> str:
        """Return what forms of the session are sent with."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    async def form(self, request: web.Request) -> MultiDict[str]:
        """Return the fields of a form that one of our pages sent; raises `PageRefused`."""
        self._check_origin(request)
        if request.content_type != "application/x-www-form-urlencoded":
            raise PageRefused("not a form of these pages", status=415)
        if (request.content_length or 0) > MOST_FORM_BYTES:
            raise PageRefused("the form is too large", status=413)
        body = await read_limited(request, MOST_FORM_BYTES, FORM_S)
        try:
            texts = MultiDict(
                parse_qsl(
                    body.decode(request.charset or "utf-8"),
                    keep_blank_values=True,
                    max_num_fields=_MOST_FIELDS,
                )
            )
        except (ValueError, LookupError) as error:  # such as an unknown charset
            raise PageRefused("the form cannot be read", status=400) from error
        expected = self.token(request.cookies.get(COOKIE, ""))
        if not hmac.compare_digest(texts.get(TOKEN_FIELD, "").encode(), expected.encode()):
            raise PageRefused(
                "the form is of an earlier session",
                status=403,
                hint="open the page again and send it once more: nothing was done",
            )
        return texts

    def _check_origin(self, request: web.Request) -> None:
        origin = urlsplit(request.headers.get("Origin", ""))
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        if (origin.scheme, origin.netloc) != (request.scheme, request.host) or (
            site != "same-origin"
        ):
            raise PageRefused("the form was sent from another site", status=403)


def is_foreign(request: web.Request) -> bool:
    """Return whether a page of another site is the sender; its links work, but change nothing."""
    return request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")


def _host_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_address(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback

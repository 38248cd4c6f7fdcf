"""An S3 server that does not behave as AWS' does: moto, and before it what changes its words."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.doubles.http import Handler, Running, Server

_HOP = ("connection", "transfer-encoding", "keep-alive", "content-length", "host")


@dataclass(kw_only=True)
class Refusal:
    """Requests that are refused: their method and query, or the name of a header that they have."""

    method: str = ""
    query: str = ""
    header: str = ""
    status: int = 501
    code: str = "NotImplemented"
    message: str = "A header or query you provided implies functionality that is not implemented."

    def is_for(self, request: Handler) -> bool:
        query = urlsplit(request.path).query
        named = [name for name in request.headers if re.match(self.header, name, re.IGNORECASE)]
        return (
            self.method in ("", request.command)
            and (not self.query or re.search(self.query, query) is not None)
            and (not self.header or bool(named))
        )


@dataclass(kw_only=True)
class S3Quirks:
    """What the server does differently."""

    refuses: list[Refusal] = field(default_factory=list)
    ignores: list[str] = field(default_factory=list)  # headers
    etags: str = ""  # `weak`, `unquoted`, or `unquoted in lists`
    first_version: bool = False  # of listings alone; ListObjectsV2 is taken for it
    page: int = 0  # keys at most in a page of a listing
    drops: list[str] = field(default_factory=list)  # headers of answers
    region: str = ""  # that signatures must name


class QuirkyS3(Running):
    """Stands before the server at `behind`, `HOST:PORT`, while its `with` block runs."""

    def __init__(self, behind: str, **quirks: Any) -> None:
        refuses = [Refusal(**one) for one in quirks.pop("refuses", ())]
        self.quirks = S3Quirks(refuses=refuses, **quirks)
        self.behind = behind
        self.servers = [Server(_Handler, self)]
        self.url = self.servers[0].url


class _Handler(Handler):
    server: Server

    def do_GET(self) -> None:
        double: QuirkyS3 = self.server.double
        quirks, data = double.quirks, self.body()
        for one in quirks.refuses:
            if one.is_for(self):
                return self._refuse(one.status, one.code, one.message)
        scope = self.headers.get("Authorization", "")
        if quirks.region and f"/{quirks.region}/s3/" not in scope:
            told = f"the region is wrong; expecting '{quirks.region}'</Message><Region>"
            told += f"{quirks.region}</Region><Message>"
            return self._refuse(400, "AuthorizationHeaderMalformed", told)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in (*_HOP, "expect")}
        for name in quirks.ignores:
            headers = {k: v for k, v in headers.items() if k.lower() != name.lower()}
        headers = {
            k: f'"{v}"' if k.lower() == "if-match" and quirks.etags and '"' not in v else v
            for k, v in headers.items()
        }
        there = http.client.HTTPConnection(double.behind, timeout=60)
        there.request(self.command, self._path(quirks), data, headers)
        answer = there.getresponse()
        body = _spelt(answer.read(), quirks.etags)
        told = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP}
        told = {k: v for k, v in told.items() if k.lower() not in map(str.lower, quirks.drops)}
        if "ETag" in told and quirks.etags in ("weak", "unquoted"):
            told["ETag"] = {"weak": f"W/{told['ETag']}", "unquoted": told["ETag"].strip('"')}[
                quirks.etags
            ]
        if self.command == "HEAD":
            told["Content-Length"] = answer.getheader("Content-Length", "0")
            self.head(answer.status, told)
        else:
            self.say(answer.status, told, body)
        there.close()
        return None

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _path(self, quirks: S3Quirks) -> str:
        path, _, query = self.path.partition("?")
        fields = dict(parse_qsl(query, keep_blank_values=True))
        if self.command != "GET" or "prefix" not in fields:
            return self.path
        if quirks.first_version:
            for name in ("list-type", "continuation-token", "start-after"):
                fields.pop(name, None)
        if quirks.page:
            fields["max-keys"] = str(quirks.page)
        return f"{path}?{urlencode(fields)}"

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.say(status, {"Content-Type": "application/xml"}, body)


def _spelt(body: bytes, etags: str) -> bytes:
    """Spell the ETags of a document."""
    quoted = rb"<ETag>(?:&quot;|\")([^<\"&]*)(?:&quot;|\")</ETag>"
    if etags.startswith("unquoted"):
        return re.sub(quoted, rb"<ETag>\1</ETag>", body)
    return body

"""The way to an endpoint of SageMaker: InvokeEndpoint and InvokeEndpointWithResponseStream.

The load client sends these requests itself, since boto3 does not report when bytes came.
Each is signed (Signature Version 4) when it is sent; answers that are streamed come as messages
of AWS's event stream, whose payloads are the server's bytes.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.request import getproxies, proxy_bypass

from packager.cli.serving.routes import BrokenStream, Connection, Incoming, Outgoing
from packager.core.text import remember_secret, remember_user

SERVICE = "sagemaker"  # that signatures name
EVENT_STREAM = "application/vnd.amazon.eventstream"
_PREFIX = "x-amzn-sagemaker-"
# Paths of servers whose bodies /invocations takes, the only path that SageMaker passes on.
_ASKED = frozenset({"/invocations", "/v1/chat/completions", "/v1/completions"})

Sign = Callable[[str, str, bytes, Mapping[str, str]], Mapping[str, str]]
"""Return all headers of a request by method, address, body and the headers it has already."""


class EndpointRoute:
    """Requests to one endpoint, or to one inference component of it."""

    def __init__(
        self,
        name: str,
        *,
        address: str,
        sign: Sign,
        connection: Connection,
        model: str = "",
        component: str = "",
    ) -> None:
        self.shown = f"sagemaker://{name}"
        self.model = model
        self.connection = connection
        self._base = f"{address.rstrip('/')}/endpoints/{name}"
        self._sign = sign
        self._component = component

    def request(self, method: str, path: str, body: bytes, *, streams: bool) -> Outgoing | None:
        """Return the signed request; None for anything but a question to the model."""
        if method != "POST" or path not in _ASKED:
            return None
        accept = "text/event-stream" if streams else "application/json"
        headers = {"content-type": "application/json"}
        headers[f"{_PREFIX}accept" if streams else "accept"] = accept
        if self._component:
            headers[f"{_PREFIX}inference-component"] = self._component
        url = f"{self._base}/invocations{'-response-stream' if streams else ''}"
        return Outgoing(url=url, headers=self._sign(method, url, body, headers))

    def answer(self, headers: Mapping[str, str]) -> Incoming:
        """Return how payloads are taken out of messages, where there are some."""
        kind = headers.get("content-type", "")
        if kind.partition(";")[0].strip().lower() != EVENT_STREAM:
            return Incoming(content_type=kind)
        inner = headers.get(f"{_PREFIX}content-type", "")
        return Incoming(content_type=inner, unwrap=Unwrapper().feed)


class Unwrapper:
    """Takes an answer's bytes out of the messages of an event stream."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer

        self._buffer = EventStreamBuffer()

    def feed(self, data: bytes) -> bytes:
        """Return the payloads of messages that end in `data`; raises `BrokenStream`."""
        from botocore.eventstream import ParserError

        found = bytearray()
        self._buffer.add_data(data)
        try:
            for message in self._buffer:
                if message.headers.get(":message-type") != "event":
                    raise BrokenStream(_reason(message.headers, message.payload))
                found += message.payload
        except ParserError as error:
            raise BrokenStream(f"a message of the event stream is broken ({error})") from error
        return bytes(found)


def signer(credentials: Any, region: str) -> Sign:
    """Return what signs with credentials of botocore, which renew themselves where they end."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    one_at_a_time = threading.Lock()  # credentials may be renewed by it

    def sign(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
        request = AWSRequest(method=method, url=url, data=body, headers=dict(headers))
        with one_at_a_time:
            frozen = credentials.get_frozen_credentials()
        remember_secret(frozen.token or "")
        SigV4Auth(frozen, SERVICE, region).add_auth(request)
        return {name.lower(): str(value) for name, value in request.headers.items()}

    return sign


def connection_to(address: str, bundle: str) -> Connection:
    """Return connections as botocore makes them: its certificates, and the environment's proxy.

    `bundle` is a file of certificates; "" for those that botocore has.
    """
    from botocore.httpsession import get_cert_path

    scheme, _, rest = address.partition("://")
    if scheme != "https":
        return Connection()
    host = rest.partition("/")[0].rpartition("@")[2]
    proxy = "" if proxy_bypass(host) else getproxies().get(scheme, "")
    remember_user(proxy)
    tls = ssl.create_default_context(cafile=bundle or get_cert_path(True))
    return Connection(tls=tls, proxy=proxy)


def _reason(headers: Mapping[str, Any], payload: bytes) -> str:
    """Return what an exception in a stream says."""
    kind = str(headers.get(":exception-type") or headers.get(":error-code") or "an exception")
    try:
        said = json.loads(payload)["Message"]
    except (ValueError, KeyError, TypeError):
        said = headers.get(":error-message", "")
    return f"{kind}: {said}" if said else kind

"""Why a server cannot be reached, whatever wraps the cause."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from packager.core.remote.unreachable import proxy_for, unreachable
from tests.support.cases import cases

HUB = "https://hub.example:8443/api"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def wrapped(cause: BaseException) -> Exception:
    """Return an error as libraries raise it: the cause below two of their own."""
    try:
        try:
            raise ConnectionError("inner") from cause
        except ConnectionError as inner:
            raise RuntimeError("outer") from inner
    except RuntimeError as outer:
        return outer


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("x")
    error.verify_message = "self-signed certificate"
    return error


def without_tls() -> ssl.SSLError:
    error = ssl.SSLError(1, "x")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("cause", "reason", "hint"),
    [
        (socket.gaierror(-2, "x"), "the host name is not known", "HTTPS_PROXY"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "connection refused", "curl -I"),
        (OSError(errno.ENETUNREACH, "x"), "the network is unreachable", "HF_ENDPOINT"),
        (OSError(errno.EHOSTUNREACH, "x"), "no route to the host", "HF_ENDPOINT"),
        (TimeoutError(), "no answer in time", "HF_ENDPOINT"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "the connection was cut", "HF_ENDPOINT"),
        (untrusted(), "its certificate is not trusted: self-signed certificate", "SSL_CERT_FILE"),
        (without_tls(), "it does not speak TLS", "http://"),
        (ssl.SSLError(1, "x"), "the TLS connection failed", "firewall"),
        (type("ReadTimeout", (Exception,), {})(), "no answer in time", "HF_ENDPOINT"),
        (type("TooManyRedirects", (Exception,), {})(), "it redirects in a circle", "HF_ENDPOINT"),
        (EOFError(), "the connection was cut", "HF_ENDPOINT"),
    ],
)
def test_the_reason_is_found_below_wrappers(cause: BaseException, reason: str, hint: str) -> None:
    found = unreachable(wrapped(cause), HUB, "HF_ENDPOINT")

    assert (found.where, found.reason) == ("hub.example:8443", reason)
    assert hint in found.hint


@cases("a_proxy_on_the_way_is_to_blame")
def test_a_proxy_on_the_way_is_to_blame(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str], variable: str, place: str
) -> None:
    for name, address in named.items():
        monkeypatch.setenv(name, address)

    found = unreachable(wrapped(ConnectionRefusedError(errno.ECONNREFUSED, "x")), HUB, "")

    assert found.where == f"hub.example:8443 by the proxy {place}"
    assert found.hint.startswith(f"correct {variable}, or unset it")
    assert "secret" not in found.where + found.hint


def test_a_host_that_no_proxy_serves_is_reached_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "hub.example")

    assert proxy_for(HUB) is None
    assert proxy_for("http://other.example") is None
    assert proxy_for("https://other.example") is not None


def test_causes_in_a_circle_end() -> None:
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first

    assert unreachable(first, HUB, "").reason == "the connection was cut"

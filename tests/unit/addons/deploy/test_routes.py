"""Ways on which the load client reaches deployments, and how their answers are read."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.credentials import ReadOnlyCredentials

from packager.addons.deploy.kubernetes.client import ApiServer
from packager.addons.deploy.kubernetes.kubeconfig import ClusterAccess, ClusterCredentials
from packager.addons.deploy.kubernetes.ways import RENEWED_S, ServiceRoute, Way, find_way
from packager.addons.deploy.sagemaker.route import EndpointRoute, Unwrapper, connection_to, signer
from packager.addons.server.eventstream import CONTENT_TYPE, exception_message, payload_parts
from packager.addons.server.sigv4 import AccessKey, SignedRequest, Verifier
from packager.cli.serving.routes import BrokenStream, Connection
from packager.core.errors import Unavailable
from tests.support.cases import cases
from tests.support.known import known

KEY = AccessKey("AKIDEXAMPLE", "a-secret")
BODY = b'{"messages": []}'


def endpoint(**changes: Any) -> EndpointRoute:
    frozen = ReadOnlyCredentials(KEY.id, KEY.secret, None)
    credentials = SimpleNamespace(get_frozen_credentials=lambda: frozen)
    given = {
        "address": "https://runtime.sagemaker.eu-west-1.amazonaws.com",
        "sign": signer(credentials, "eu-west-1"),
        "connection": Connection(),
        **changes,
    }
    return EndpointRoute("llama", **given)


@cases("a_request_to_an_endpoint_is_signed_as_aws_checks_it")
def test_a_request_to_an_endpoint_is_signed_as_aws_checks_it(streams: bool, path: str) -> None:
    sent = known(
        endpoint(component="llama-model").request(
            "POST", "/v1/chat/completions", BODY, streams=streams
        )
    )

    target = urlsplit(sent.url)
    assert target.path == f"/endpoints/llama/{path}"
    assert sent.headers["x-amzn-sagemaker-inference-component"] == "llama-model"
    verifier = Verifier(keys={KEY.id: KEY}, region="eu-west-1", now=lambda: datetime.now(UTC))
    headers = [*sent.headers.items(), ("host", target.netloc)]
    claim = verifier.claim(headers, ("sagemaker",))
    signed = SignedRequest(method="POST", target=target.path, headers=headers, body=BODY)
    verifier.prove(claim, signed)
    assert KEY.secret not in repr(sent)


@cases("sagemaker_passes_on_questions_alone")
def test_sagemaker_passes_on_questions_alone(method: str, path: str) -> None:
    assert endpoint().request(method, path, b"", streams=False) is None


def test_a_stream_is_taken_out_of_messages_wherever_they_are_cut() -> None:
    whole = b"".join(payload_parts(b"data: {}\n\n")) + b"".join(payload_parts(b"data: [DONE]\n\n"))
    for size in (1, 7, 50, len(whole)):
        reader, source = Unwrapper(), io.BytesIO(whole)
        found = b"".join(reader.feed(piece) for piece in iter(lambda: source.read(size), b""))  # noqa: B023
        assert found == b"data: {}\n\ndata: [DONE]\n\n"


def test_the_servers_own_type_is_read_of_a_stream() -> None:
    inner = {"content-type": CONTENT_TYPE, "x-amzn-sagemaker-content-type": "text/event-stream"}
    assert endpoint().answer(inner).content_type == "text/event-stream"
    plain = endpoint().answer({"content-type": "application/json"})
    assert (plain.content_type, plain.unwrap) == ("application/json", None)


def test_a_stream_that_was_broken_off_says_why() -> None:
    data = exception_message("ModelStreamError", {"Message": "out of memory", "ErrorCode": "x"})
    with pytest.raises(BrokenStream, match="ModelStreamError: out of memory"):
        Unwrapper().feed(data)


def test_a_message_that_was_changed_on_its_way_is_no_answer() -> None:
    whole = bytearray(b"".join(payload_parts(b"data: {}\n\n")))
    whole[-6] ^= 1
    with pytest.raises(BrokenStream, match="is broken"):
        Unwrapper().feed(bytes(whole))


def test_connections_to_aws_check_its_certificate_and_take_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    made = connection_to("https://runtime.sagemaker.eu-west-1.amazonaws.com", "")
    assert made.tls is not None
    assert made.tls.check_hostname
    assert made.proxy == "http://proxy.example:3128"
    assert connection_to("https://inside.example", "").proxy == ""
    assert connection_to("http://127.0.0.1:8080", "") == Connection()


def of_kind(kind: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "llama"}, "spec": spec}


class Services:
    """An API server that has these Services."""

    def __init__(self, *found: dict[str, Any]) -> None:
        self.found = found
        self.asked: list[str] = []

    def listed(self, where: Any, selector: str) -> list[dict[str, Any]]:
        self.asked.append(f"{where.path}?{selector}")
        return list(self.found)


@cases("services")
def test_each_kind_has_its_service(main: dict[str, Any], path: str, asked: str) -> None:
    way = find_way(Services(), main, "models")  # type: ignore[arg-type]
    assert way.path("models", path) == f"/api/v1/namespaces/models/services/{asked}"


def test_kserves_own_server_is_asked_below_its_prefix_alone() -> None:
    main = of_kind("InferenceService", predictor={"model": {}})
    way = find_way(Services(), main, "models")  # type: ignore[arg-type]
    assert way.path("models", "/metrics") is None


@pytest.mark.parametrize(("port", "scheme"), [("https", "https:"), ("http", "")])
def test_the_service_of_an_llm_is_found_by_its_labels(port: str, scheme: str) -> None:
    """KServe cuts the names of long ones, and a setting of the cluster says whether it has TLS."""
    kept = {"metadata": {"name": "llama-abc"}, "spec": {"ports": [{"name": port, "port": 8000}]}}
    server = Services(kept)
    way = find_way(server, of_kind("LLMInferenceService"), "models")  # type: ignore[arg-type]
    assert way.service == f"{scheme}llama-abc:8000"
    assert "app.kubernetes.io/name=llama" in server.asked[0]


def test_an_llm_without_a_service_so_far_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="made no Service for 'llama'"):
        find_way(Services(), of_kind("LLMInferenceService"), "models")  # type: ignore[arg-type]


def test_credentials_of_a_long_load_are_found_anew_before_they_end() -> None:
    tokens = iter(("second", "third"))

    def access(token: str) -> ClusterAccess:
        return ClusterAccess(server="https://one", credentials=ClusterCredentials(token=token))

    server = ApiServer(access("first"), renew=lambda: access(next(tokens)))
    moments = iter((0.0, 1.0, RENEWED_S + 1, RENEWED_S + 2))
    way = Way(service="llama:http")
    given = {"shown": "x", "namespace": "models", "clock": lambda: next(moments)}
    route = ServiceRoute(server, way, beside=lambda work: work(), **given)  # type: ignore[arg-type]

    sent = [route.request("POST", "/invocations", b"", streams=True) for _ in range(3)]

    told = [one.headers["authorization"] for one in sent if one is not None]
    assert told == ["Bearer first", "Bearer second", "Bearer second"]
    assert "second" not in repr(sent)

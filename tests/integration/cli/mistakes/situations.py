"""What is there when a mistake is made: real files, doubles of hubs and registries, closed ports.

Each situation is a context manager over the working directory.  It gives values for `{…}` in a
row of `mistakes.toml`; the working directory itself is `{here}`.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from tests.support.certificates import self_signed
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry

Values = Mapping[str, str]
MODEL = {"config.json": b"{}"}  # of a repository that nobody reads


@contextmanager
def nothing(here: Path) -> Iterator[Values]:
    yield {}


@contextmanager
def refused(here: Path) -> Iterator[Values]:
    """A port that nobody listens at, and nobody else can take meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield {"closed": f"127.0.0.1:{held.getsockname()[1]}"}


@contextmanager
def hub(here: Path) -> Iterator[Values]:
    with FakeHub() as served:
        served.add("acme/tiny", MODEL)
        yield _of(served)


@contextmanager
def gated_hub(here: Path) -> Iterator[Values]:
    with FakeHub() as served:
        served.add("acme/tiny", write_model(here / "published"), gated=True)
        yield _of(served)


def failing_hub(status: int, **headers: str) -> Callable[[Path], AbstractContextManager[Values]]:
    @contextmanager
    def situation(here: Path) -> Iterator[Values]:
        with FakeHub() as served:
            served.failing["/api/"] = status
            served.failing_headers = {
                name.replace("_", "-"): text for name, text in headers.items()
            }
            yield _of(served)

    return situation


@contextmanager
def tls_hub(here: Path) -> Iterator[Values]:
    """A server whose certificate nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(here))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_shake_hands, args=(listening, context), daemon=True).start()
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        yield {"hub": f"https://{host}", "hub_host": host}


def model(spoil: Callable[[Path], None]) -> Callable[[Path], AbstractContextManager[Values]]:
    @contextmanager
    def situation(here: Path) -> Iterator[Values]:
        spoil(write_model(here / "model"))
        yield {}

    return situation


def registry(**quirks: object) -> Callable[[Path], AbstractContextManager[Values]]:
    @contextmanager
    def situation(here: Path) -> Iterator[Values]:
        with FakeRegistry(**quirks) as served:
            login = base64.b64encode(b"alice:wrong").decode()
            (here / "docker").mkdir()
            (here / "docker" / "config.json").write_text(
                json.dumps({"auths": {served.host: {"auth": login}}})
            )
            yield {"registry": served.host}

    return situation


def _of(served: FakeHub) -> Values:
    return {"hub": served.url, "hub_host": served.url.removeprefix("http://")}


def _shake_hands(listening: socket.socket, context: ssl.SSLContext) -> None:
    """Begin TLS with clients, which do not trust it."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
            pass


def _emptied(model: Path) -> None:
    shutil.rmtree(model)
    model.mkdir()


def _pickled(model: Path) -> None:
    for path in model.glob("*.safetensors*"):
        path.unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": [1]}, protocol=2))


def _gguf(model: Path) -> None:
    for path in model.glob("*.safetensors*"):
        path.unlink()
    (model / "model-q4_k_m.gguf").write_bytes(b"GGUF")


def _cut(model: Path) -> None:
    shard = model / "model-00003-of-00003.safetensors"
    os.truncate(shard, shard.stat().st_size - 100)


def _changed(**fields: object) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        config = json.loads((model / "config.json").read_text()) | fields
        present = {name: value for name, value in config.items() if value is not None}
        (model / "config.json").write_text(json.dumps(present))

    return change


SITUATIONS: Mapping[str, Callable[[Path], AbstractContextManager[Values]]] = {
    "nothing": nothing,
    "refused": refused,
    "hub": hub,
    "gated-hub": gated_hub,
    "forbidding-hub": failing_hub(403),
    "busy-hub": failing_hub(429, Retry_After="30"),
    "limiting-hub": failing_hub(429, RateLimit='"api";r=0;t=55'),
    "broken-hub": failing_hub(503),
    "tls-hub": tls_hub,
    "plain-model": model(lambda model: None),
    "empty-model": model(_emptied),
    "pickled-model": model(_pickled),
    "gguf-model": model(_gguf),
    "cut-model": model(_cut),
    "model-without-shard": model(
        lambda model: (model / "model-00002-of-00003.safetensors").unlink()
    ),
    "model-without-tokenizer": model(lambda model: (model / "tokenizer.json").unlink()),
    "model-with-broken-config": model(
        lambda model: _write(model / "config.json", '{"hidden_size": ')
    ),
    "model-with-code": model(_changed(architectures=["New"], auto_map={"AutoConfig": "c.Config"})),
    "model-without-layers": model(_changed(num_hidden_layers=None)),
    "registry": registry(),
    "registry-with-login": registry(auth="basic"),
}


def _write(path: Path, text: str) -> None:
    path.write_text(text)

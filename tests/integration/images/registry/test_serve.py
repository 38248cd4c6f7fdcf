"""The embedded registry: one image, read only, from segments."""

from __future__ import annotations

import http.client
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packager.core.image import (
    MEDIA_LAYER,
    Blob,
    Descriptor,
    FileRange,
    Inline,
    RemoteRange,
    SealedImage,
)
from packager.images.blobs import BlobReader, SourceChanged
from packager.images.oci import seal
from packager.images.registry.clients import RegistryClients
from packager.images.registry.reference import parse_reference
from packager.images.registry.serve import EmbeddedRegistry
from tests.integration.images.registry.conftest import Clients
from tests.support.cases import cases
from tests.support.doubles.registry import sha256
from tests.support.made_images import image_with, layer_with

HEAD, TAIL = b"head" * 100, b"tail" * 100
FAR = os.urandom(50_000)


class FarReader:
    """Reads `far` segments, which are somewhere else."""

    scheme = "far"

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        yield FAR[segment.offset : segment.offset + segment.length]


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    (tmp_path / "file").write_bytes(os.urandom(3_000_000))
    return HEAD + (tmp_path / "file").read_bytes()[1000:2_901_000] + FAR[5:40_005] + TAIL


@pytest.fixture
def layer(tmp_path: Path) -> Blob:
    return Blob(
        (
            Inline(HEAD),
            FileRange(path=str(tmp_path / "file"), offset=1000, length=2_900_000),
            RemoteRange(url="far://x", offset=5, length=40_000),
            Inline(TAIL),
        )
    )


@pytest.fixture
def image(content: bytes, layer: Blob) -> SealedImage:
    spec = image_with(layer_with(layer, digest=sha256(content)))
    described = Descriptor(media_type=MEDIA_LAYER, digest=sha256(content), size=len(content))
    return seal(spec, [described])


Serve = Callable[[], EmbeddedRegistry]


@pytest.fixture
def serve(image: SealedImage, content: bytes, layer: Blob) -> Serve:
    return lambda: EmbeddedRegistry(
        image, {sha256(content): layer}, BlobReader([FarReader()]), tag="1"
    )


def test_a_client_pulls_the_image_whole(
    serve: Serve, image: SealedImage, content: bytes, clients: Clients
) -> None:
    with serve() as served:
        name = parse_reference(served.name)
        client = clients().at(name.host)
        client.ping()
        by_digest = client.get_manifest(name.repository, image.digest)
        by_tag = client.get_manifest(name.repository, "1")
        config = client.get_blob(name.repository, image.config_descriptor.digest, 10_000)
        digest = sha256(content)
        assert client.head_blob(name.repository, digest) == len(content)
        read = client.read_blob(name.repository, digest, offset=0, length=len(content))
        assert b"".join(read) == content

    assert by_digest == by_tag
    assert (by_tag.data, by_tag.digest, config) == (image.manifest, image.digest, image.config)
    expected = len(content) + 2 * len(image.manifest) + len(image.config)
    assert served.bytes_served == expected


@cases("range")
def test_a_range_may_begin_and_end_in_any_segment(
    serve: Serve, content: bytes, asked: str, first: int, stop: int | None
) -> None:
    with serve() as served:
        answer = get(served, f"blobs/{sha256(content)}", {"Range": asked})
        assert answer.read() == content[first:stop]

    assert answer.status == 206
    last = (stop or len(content)) - 1
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(content)}"


def test_a_range_behind_the_end_is_refused(serve: Serve, content: bytes) -> None:
    with serve() as served, pytest.raises(urllib.error.HTTPError) as refused:
        get(served, f"blobs/{sha256(content)}", {"Range": f"bytes={len(content)}-"})

    assert refused.value.code == 416
    assert refused.value.headers["Content-Range"] == f"bytes */{len(content)}"


@pytest.mark.parametrize("path", ["manifests/2", "blobs/sha256:" + "0" * 64, "tags/list", ""])
def test_nothing_else_is_there(serve: Serve, path: str) -> None:
    with serve() as served, pytest.raises(urllib.error.HTTPError) as refused:
        get(served, path)

    assert refused.value.code == 404


def test_another_repository_is_not_there(serve: Serve, image: SealedImage) -> None:
    with serve() as served:
        host = parse_reference(served.name).host
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{host}/v2/packager/guess/manifests/{image.digest}")

    assert refused.value.code == 404


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
def test_nothing_can_be_changed(serve: Serve, method: str) -> None:
    with serve() as served:
        connection = http.client.HTTPConnection(parse_reference(served.name).host)
        connection.request(method, f"/v2/{served.repository}/manifests/1", body=b"")
        assert connection.getresponse().status == 501
        connection.close()


def test_a_file_that_shrank_breaks_the_answer_off_and_says_why(
    serve: Serve, content: bytes, tmp_path: Path
) -> None:
    os.truncate(tmp_path / "file", 10_000)

    with serve() as served:
        with pytest.raises(http.client.IncompleteRead):
            get(served, f"blobs/{sha256(content)}").read()
        assert isinstance(served.failure, SourceChanged)


def test_several_readers_are_served_at_once(serve: Serve, content: bytes, clients: Clients) -> None:
    found: list[bytes] = []

    def read(all_clients: RegistryClients, served: EmbeddedRegistry) -> None:
        name = parse_reference(served.name)
        chunks = all_clients.at(name.host).read_blob(
            name.repository, sha256(content), offset=0, length=len(content)
        )
        found.append(b"".join(chunks))

    with serve() as served:
        threads = [threading.Thread(target=read, args=(clients(), served)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert found == [content] * 6


def get(
    served: EmbeddedRegistry, path: str, headers: dict[str, str] | None = None
) -> http.client.HTTPResponse:
    host = parse_reference(served.name).host
    request = urllib.request.Request(
        f"http://{host}/v2/{served.repository}/{path}", headers=headers or {}
    )
    answer: http.client.HTTPResponse = urllib.request.urlopen(request)
    return answer

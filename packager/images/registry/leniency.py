"""How lenient a push is: which answers count, and which leave a doubt.

A digest closes every upload and names every manifest, so only a wrong digest fails a push whose
bytes have arrived.  A status of the specification is believed.  Another status that registries are
known to send leaves a doubt, as a wrong or missing header does, which the caller resolves by
reading back: `RegistryClient.has_blob`, `RegistryClient.get_manifest`. Statuses are as lenient as
those of containerd (core/remotes/docker/pusher.go), go-containerregistry (pkg/v1/remote/write.go)
and containers/image (docker/docker_image_dest.go).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from packager.images.oci import is_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class PushStep:
    """A step that stores something: the statuses that count, and those that leave no doubt."""

    taken: Collection[int]
    sure: Collection[int]


# containerd goes on after 200 and 204, too.
OPENED = (200, 201, 202, 204)
# containers/image takes all that is no error. Whether the bytes are there, the closing PUT tells.
SENT = range(200, 300)
# containerd: "some registries return 200, 202 or 204"; containers/image takes redirections.
CLOSE_UPLOAD = PushStep(taken=range(200, 400), sure=(201, 204))
# Quay answered 202 (containers/image#381), distribution too (distribution#142); containers/image
# takes redirections: a web server that stores nothing gives them as well, hence the doubt.
STORE_MANIFEST = PushStep(taken=range(200, 400), sure=(201,))


def is_doubtful(step: PushStep, status: int, stored: str, digest: str) -> bool:
    """Whether an answer that counts has to be settled by reading back.

    `stored` is its Docker-Content-Digest, which is optional, and which many registries and proxies
    compute of something else (GoogleContainerTools/kaniko#298).
    """
    return status not in step.sure or (is_digest(stored) and stored != digest)

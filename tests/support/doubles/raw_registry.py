"""A registry spoken to without packager: what anyone who may push can do."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
EMPTY = "application/vnd.oci.empty.v1+json"


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def descriptor(data: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": sha256(data), "size": len(data)}


@dataclass(frozen=True)
class RawRegistry:
    """Use with any registry that speaks plain HTTP without credentials."""

    host: str

    def manifest(self, repository: str, pointer: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manifest_bytes(repository, pointer))
        return found

    def manifest_bytes(self, repository: str, pointer: str) -> bytes:
        accept = {"Accept": f"{MANIFEST}, {INDEX}"}
        return self._call("GET", f"/v2/{repository}/manifests/{pointer}", headers=accept)

    def put_manifest(
        self, repository: str, pointer: str, document: dict[str, Any], media_type: str = MANIFEST
    ) -> str:
        """Store a manifest under a tag, or under its digest with `pointer` empty."""
        data = json.dumps(document).encode()
        where = f"/v2/{repository}/manifests/{pointer or sha256(data)}"
        self._call("PUT", where, data, {"Content-Type": media_type})
        return sha256(data)

    def blob(self, repository: str, digest: str) -> bytes:
        return self._call("GET", f"/v2/{repository}/blobs/{digest}")

    def put_blob(self, repository: str, data: bytes) -> str:
        place = self._answer("POST", f"/v2/{repository}/blobs/uploads/", b"")[0]["Location"]
        kind = {"Content-Type": "application/octet-stream"}
        place = self._answer("PATCH", place, data, kind)[0]["Location"]
        joined = "&" if urlsplit(place).query else "?"
        self._call("PUT", f"{place}{joined}digest={sha256(data)}", b"")
        return sha256(data)

    def attached(self, repository: str, subject: str) -> list[dict[str, Any]]:
        """What is listed as attached to a manifest, through the API or the tag."""
        for where in (
            f"/v2/{repository}/referrers/{subject}",
            f"/v2/{repository}/manifests/{subject.replace(':', '-')}",
        ):
            try:
                data = self._call("GET", where, headers={"Accept": INDEX})
                found: list[dict[str, Any]] = json.loads(data)["manifests"]
            except urllib.error.HTTPError:
                continue
            return found
        return []

    def attach(
        self, repository: str, subject: str, document: bytes, artifact_type: str, **annotations: str
    ) -> None:
        """Attach a document to a manifest, so that both ways of listing show it."""
        self.put_blob(repository, b"{}")
        self.put_blob(repository, document)
        about = self.manifest_bytes(repository, subject)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": artifact_type,
            "config": descriptor(b"{}", EMPTY),
            "layers": [descriptor(document, artifact_type)],
            "subject": descriptor(about, MANIFEST),
            "annotations": annotations,
        }
        digest = self.put_manifest(repository, "", manifest)
        entry = {
            **descriptor(json.dumps(manifest).encode(), MANIFEST),
            "artifactType": artifact_type,
            "annotations": annotations,
        }
        assert entry["digest"] == digest
        others = [one for one in self.attached(repository, subject) if one["digest"] != digest]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*others, entry]}
        self.put_manifest(repository, subject.replace(":", "-"), index, INDEX)

    def _call(self, *asked: Any, **more: Any) -> bytes:
        return self._answer(*asked, **more)[1]

    def _answer(
        self, method: str, where: str, data: bytes | None = None, headers: Any = ()
    ) -> tuple[Any, bytes]:
        """Ask, and return the headers and the body of the answer."""
        url = where if "://" in where else f"http://{self.host}{where}"
        request = urllib.request.Request(url, data=data, method=method, headers=dict(headers))
        with urllib.request.urlopen(request) as answer:
            return answer.headers, answer.read()

"""Objects with which a cluster admits images by key: policy-controller's and Kyverno's.

Both read cosign's tag form (`.sig`), which `--sign` always writes; neither asks a log.
Sources: sigstore/policy-controller v0.15.1 pkg/apis, kyverno 1.18 api/kyverno (2026-11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rendered = dict[str, Any]


def cluster_image_policy(name: str, globs: Sequence[str], pem: str) -> Rendered:
    """Return policy-controller's object: images of these globs need a signature by the key."""
    return {
        "apiVersion": "policy.sigstore.dev/v1beta1",
        "kind": "ClusterImagePolicy",
        "metadata": {"name": name},
        "spec": {
            "images": [{"glob": one} for one in globs],
            "authorities": [{"name": "key", "key": {"hashAlgorithm": "sha256", "data": pem}}],
        },
    }


def kyverno_policy(name: str, globs: Sequence[str], pem: str) -> Rendered:
    """Return Kyverno's object: pods with images of these globs need a signature by the key."""
    verified = {
        "type": "Cosign",
        "imageReferences": list(globs),
        "failureAction": "Enforce",
        "mutateDigest": True,
        "required": True,
        "attestors": [
            {
                "count": 1,
                "entries": [
                    {
                        "keys": {
                            "publicKeys": pem,
                            "signatureAlgorithm": "sha256",
                            "rekor": {"ignoreTlog": True},
                            "ctlog": {"ignoreSCT": True},
                        }
                    }
                ],
            }
        ],
    }
    rule = {
        "name": "signature",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "verifyImages": [verified],
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"webhookTimeoutSeconds": 30, "background": False, "rules": [rule]},
    }


VERIFIERS: Mapping[str, Callable[[str, Sequence[str], str], Rendered]] = {
    "policy-controller": cluster_image_policy,
    "kyverno": kyverno_policy,
}

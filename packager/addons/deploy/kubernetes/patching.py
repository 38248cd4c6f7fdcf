"""Objects of a deployment with what a user's patch changes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.addons.deploy.kubernetes.objects import MANAGER, OWNER
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.addons.deploy.merging import DIRECTIVE, MergeRules
from packager.addons.deploy.patches import Patch, bad_patch
from packager.core.text import escape

# Objects that have the pods; a list of operations is about them.
MAIN = (
    *("Deployment", "LeaderWorkerSet", "InferenceService", "LLMInferenceService"),
    "InferenceEndpointConfig",
)
# `x-kubernetes-patch-merge-key` of Kubernetes' schemas, 1.31 to 1.37; the same lists have them in
# custom resources, for which API servers know no strategic merge.
RULES = MergeRules(
    keys={
        **dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), ("name",)),
        **dict.fromkeys(("env", "environmentVariables", "volumes", "imagePullSecrets"), ("name",)),
        **dict.fromkeys(("resourceClaims", "schedulingGates"), ("name",)),
        "hostAliases": ("ip",),
        "ports": ("containerPort", "port"),
        "topologySpreadConstraints": ("topologyKey",),
        "volumeDevices": ("devicePath",),
        "volumeMounts": ("mountPath",),
    }
)


def patched(objects: Mapping[str, Any], wanted: KubernetesSpec) -> dict[str, Any]:
    """Return objects by their files, each with its part of the patch; raise `UsageError`."""
    made = dict(objects)
    if wanted.patch.operations:
        path = next(name for name, one in made.items() if one["kind"] in MAIN)
        made[path] = wanted.patch.apply(made[path], RULES)
    for part in wanted.patch.parts:
        path = _named(made, part)
        if part.get(DIRECTIVE) == "delete" and made[path]["kind"] not in MAIN:
            del made[path]
        else:
            made[path] = Patch(parts=(part,)).apply(made[path], RULES)
    for path, one in made.items():
        if _identity(one) != _identity(objects[path]):
            raise bad_patch(
                f"the {objects[path]['kind']} is found by its kind, name, namespace and the labels "
                f"{OWNER} and managed-by, which stay",
                "give --name or --namespace",
            )
    return made


def _named(objects: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """Return the file of the object that a part is about."""
    kind, name = part.get("kind"), _inside(part, "metadata").get("name")
    kinds = sorted({str(one["kind"]) for one in objects.values()})
    if not isinstance(kind, str):
        raise bad_patch("a document has no kind", f"there are {', '.join(kinds)}")
    found = [
        path
        for path, one in objects.items()
        if one["kind"] == kind
        and name in (None, one["metadata"]["name"])
        and part.get("apiVersion") in (None, one["apiVersion"])
    ]
    if not found:
        called = escape(" ".join(str(one)[:80] for one in (kind, name) if one))
        raise bad_patch(f"{called!r} is not rendered", f"there are {', '.join(kinds)}")
    return found[0]


def _identity(found: Mapping[str, Any]) -> tuple[Any, ...]:
    meta = _inside(found, "metadata")
    labels = _inside(meta, "labels")
    kept = (labels.get(OWNER), labels.get("app.kubernetes.io/managed-by") == MANAGER)
    return found.get("apiVersion"), found.get("kind"), meta.get("name"), meta.get("namespace"), kept


def _inside(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    there = found.get(name)
    return there if isinstance(there, Mapping) else {}

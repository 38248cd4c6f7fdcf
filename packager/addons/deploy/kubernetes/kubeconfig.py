"""Kubeconfig files: the API server, and the client's credentials.

Files of `KUBECONFIG` are merged as kubectl does: the first definition of a name wins.  No
credential of them reaches a message.
"""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from packager.core.errors import AccessDenied, NotFound, UsageError
from packager.core.files.pipes import open_waiting

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_S = 60.0  # that a credential plugin may take
LARGEST = 1 << 20  # bytes of a file that is read


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCredentials:
    """The client's credentials; the repr hides them."""

    token: str = field(default="", repr=False)
    basic: str = field(default="", repr=False)  # NAME:PASSWORD
    certificate: bytes = field(default=b"", repr=False)  # PEM
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """One API server and the client's credentials."""

    server: str
    namespace: str = ""  # of the context; "": `default`
    authority: bytes = b""  # PEM of its certificate's issuer; b"": the system's
    verify: bool = True
    server_name: str = ""  # in its certificate, where it is not the address
    proxy: str = ""
    credentials: ClusterCredentials = ClusterCredentials()


class BadKubeconfig(UsageError):
    """A kubeconfig does not say how a cluster is reached."""

    def __init__(self, what: str) -> None:
        super().__init__(what, hint="`kubectl config view` shows what it reads")


def find_access(
    environment: Mapping[str, str],
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    in_cluster: Path = IN_CLUSTER,
) -> ClusterAccess:
    """Return how a cluster is reached: by files, else as a pod of it.

    Raises `NotFound` where there is neither, `BadKubeconfig`, `AccessDenied` of a plugin.
    """
    named = [kubeconfig] if kubeconfig else _paths(environment)
    files = [one for one in named if one.is_file()]
    if not files:
        if kubeconfig is None and environment.get("KUBERNETES_SERVICE_HOST"):
            return _of_pod(environment, in_cluster)
        raise NotFound(
            "no kubeconfig says where a cluster is",
            hint="name one with --kubeconfig or KUBECONFIG",
        )
    merged: dict[str, dict[str, Any]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = context
    for path in files:
        current = _merge(merged, path, current)
    return _access(merged, current, environment)


def _paths(environment: Mapping[str, str]) -> list[Path]:
    if listed := environment.get("KUBECONFIG"):
        return [Path(one) for one in listed.split(":") if one]
    return [Path(environment.get("HOME") or "~").expanduser() / ".kube" / "config"]


def _merge(merged: dict[str, dict[str, Any]], path: Path, current: str) -> str:
    """Add a file's entries with paths made absolute; return the current context's name."""
    try:
        found = yaml.safe_load(_bytes_of(path).decode())
    # The parser's message would quote its lines. Dates and numbers that are none are ValueErrors.
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BadKubeconfig(f"{str(path)!r} is not YAML") from None
    if not isinstance(found, dict):
        raise BadKubeconfig(f"{str(path)!r} is no kubeconfig")
    for kind, entries in merged.items():
        for one in _list(found.get(kind)):
            inner = one.get(kind[:-1]) if isinstance(one, dict) else None
            if isinstance(inner, dict) and isinstance(one.get("name"), str):
                entries.setdefault(one["name"], {**inner, "": path.parent})
    return current or str(found.get("current-context") or "")


def _access(
    merged: Mapping[str, Mapping[str, Any]], current: str, environment: Mapping[str, str]
) -> ClusterAccess:
    if not current:
        raise BadKubeconfig("no context of the kubeconfig is the current one")
    context = _entry(merged, "contexts", current)
    cluster = _entry(merged, "clusters", str(context.get("cluster") or ""))
    user = str(context.get("user") or "")
    server = str(cluster.get("server") or "")
    if not server.startswith(("https://", "http://")):
        raise BadKubeconfig(f"the cluster of context {current!r} has no address")
    asks = _entry(merged, "users", user) if user else {}
    return ClusterAccess(
        server=server.rstrip("/"),
        namespace=str(context.get("namespace") or ""),
        authority=_data(cluster, "certificate-authority"),
        verify=cluster.get("insecure-skip-tls-verify") is not True,
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or ""),
        credentials=_credentials(asks, environment),
    )


def _entry(merged: Mapping[str, Mapping[str, Any]], kind: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = merged[kind].get(name)
    if found is None:
        raise BadKubeconfig(f"the kubeconfig has no {kind[:-1]} {name!r}")
    return found


def _credentials(user: Mapping[str, Any], environment: Mapping[str, str]) -> ClusterCredentials:
    if isinstance(user.get("exec"), dict):
        return _run_plugin(user["exec"], user.get("", Path()), environment)
    if "auth-provider" in user:
        raise BadKubeconfig("auth-provider of the kubeconfig is gone from Kubernetes 1.26")
    token = str(user.get("token") or "")
    if user.get("tokenFile"):  # what is in the file is newer
        token = _read(user, str(user["tokenFile"])).decode(errors="replace")
    basic = f"{user['username']}:{user.get('password') or ''}" if user.get("username") else ""
    return ClusterCredentials(
        token=_one_line(token),
        basic=basic,
        certificate=_data(user, "client-certificate"),
        key=_data(user, "client-key"),
    )


def _one_line(token: str) -> str:
    """Return a token; raise where no header takes it: what http.client says would repeat it."""
    found = token.strip()
    if not (found.isascii() and found.isprintable()):
        raise BadKubeconfig("the token of the kubeconfig is not one line of ASCII")
    return found


def _data(entry: Mapping[str, Any], name: str) -> bytes:
    """Return what `NAME-data` holds in base64, or the file NAME."""
    if encoded := entry.get(f"{name}-data"):
        try:
            return base64.b64decode("".join(str(encoded).split()), validate=True)  # may be wrapped
        except (binascii.Error, ValueError):
            raise BadKubeconfig(f"{name}-data of the kubeconfig is not base64") from None
    return _read(entry, str(entry[name])) if entry.get(name) else b""


def _read(entry: Mapping[str, Any], name: str) -> bytes:
    """Return a file that a kubeconfig names, relative to itself."""
    path = entry.get("", Path()) / name
    try:
        return _bytes_of(path)
    except OSError as error:
        raise BadKubeconfig(f"{str(path)!r}, named by the kubeconfig: {error.strerror}") from None


def _bytes_of(path: Path) -> bytes:
    with open_waiting(path) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise BadKubeconfig(f"{str(path)!r} is too large for a kubeconfig")
    return data


def _run_plugin(
    plugin: Mapping[str, Any], directory: Path, environment: Mapping[str, str]
) -> ClusterCredentials:
    """Run a credential plugin, as `client.authentication.k8s.io` describes."""
    command = str(plugin.get("command") or "")
    if "/" in command and not command.startswith("/"):
        command = str(directory / command)
    version = str(plugin.get("apiVersion") or "client.authentication.k8s.io/v1")
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    own = {
        str(one.get("name")): str(one.get("value"))
        for one in _list(plugin.get("env"))
        if isinstance(one, dict)
    }
    try:
        ended = subprocess.run(
            [command, *map(str, _list(plugin.get("args")))],
            env={**environment, **own, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=EXEC_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise _plugin_failed(command, "does not start or does not end") from None
    if ended.returncode:
        raise _plugin_failed(command, f"ended with status {ended.returncode}")
    try:
        status = json.loads(ended.stdout)["status"]
        return ClusterCredentials(
            token=_one_line(str(status.get("token") or "")),
            certificate=str(status.get("clientCertificateData") or "").encode(),
            key=str(status.get("clientKeyData") or "").encode(),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _plugin_failed(command, "printed no ExecCredential") from None


def _list(found: object) -> list[Any]:
    """Return a list of a file; empty where it is something else."""
    return found if isinstance(found, list) else []


def _plugin_failed(command: str, what: str) -> AccessDenied:
    return AccessDenied(
        f"the credential plugin {Path(command).name[:60]!r} {what}",
        hint="run it by hand, as the kubeconfig names it",
    )


def _of_pod(environment: Mapping[str, str], directory: Path) -> ClusterAccess:
    try:
        token = _one_line((directory / "token").read_text(encoding="utf-8"))
        authority = (directory / "ca.crt").read_bytes()
        namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadKubeconfig(f"the pod has no service account: {error.strerror}") from None
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT")
    host = f"[{host}]" if ":" in host else host
    return ClusterAccess(
        server=f"https://{host}:{port or 443}",
        namespace=namespace,
        authority=authority,
        credentials=ClusterCredentials(token=token),
    )

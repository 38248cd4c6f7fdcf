"""Kubeconfig files as kubectl reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from packager.addons.deploy.kubernetes.kubeconfig import BadKubeconfig, find_access
from packager.core.errors import AccessDenied, NotFound
from tests.support.cases import cases, read_tables

CONFIG: dict[str, Any] = read_tables(__file__)["config"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "ca").write_bytes(b"PEM")
    return written(tmp_path / "config", CONFIG)


def written(path: Path, document: Any) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_current_context_says_where_and_who(config: Path) -> None:
    found = find_access({}, kubeconfig=config)
    assert (found.server, found.namespace) == ("https://one:6443", "models")
    assert found.authority == b"PEM"
    assert found.credentials.token == "a-token"
    assert "a-token" not in repr(found)

    other = find_access({"KUBECONFIG": str(config)}, context="two")
    assert (other.server, other.verify) == ("https://two", False)


def test_of_several_files_the_first_is_right(config: Path, tmp_path: Path) -> None:
    second = written(tmp_path / "second", read_tables(__file__)["second"])
    listed = f"{config}:{tmp_path / 'absent'}:{second}"
    assert find_access({"KUBECONFIG": listed}).namespace == "models"
    found = find_access({"KUBECONFIG": listed}, context="three")
    assert (found.server, found.credentials.token) == ("https://three", "a-token")


@cases("credentials")
def test_all_forms_of_credential(config: Path, user: dict[str, str], name: str, value: str) -> None:
    written(config, {**CONFIG, "users": [{"name": "u", "user": user}]})
    found = getattr(find_access({}, kubeconfig=config).credentials, name)
    assert found == (value.encode() if name in ("certificate", "key") else value)


def test_a_pod_asks_with_its_service_account(tmp_path: Path) -> None:
    for name in ("token", "ca.crt", "namespace"):
        (tmp_path / name).write_text(f"the-{name}\n")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "HOME": str(tmp_path / "home")}
    found = find_access(environment, in_cluster=tmp_path)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "the-namespace")
    assert found.credentials.token == "the-token"


def test_without_any_file_nothing_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no kubeconfig"):
        find_access({"HOME": str(tmp_path)})


@cases("faults")
def test_what_is_wrong_in_a_file_is_named(config: Path, change: dict[str, Any], said: str) -> None:
    written(config, {**CONFIG, **change})
    with pytest.raises(BadKubeconfig, match=said):
        find_access({}, kubeconfig=config)


@pytest.mark.parametrize("text", ["[1", "- a", "token: {secret", "", "\x00"])
def test_files_that_are_none_are_refused_without_their_text(config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises(BadKubeconfig) as raised:
        find_access({}, kubeconfig=config)
    assert "secret" not in str(raised.value)


def plugin(config: Path, script: str, **fields: Any) -> None:
    program = config.parent / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    user = {"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1"}}
    user["exec"] |= fields
    written(config, {**CONFIG, "users": [{"name": "u", "user": user}]})


def test_a_plugin_is_run_beside_its_file_with_what_it_is_asked(config: Path) -> None:
    script = """case $KUBERNETES_EXEC_INFO in *'"kind": "ExecCredential"'*) ;; *) exit 3 ;; esac
printf '{"status": {"token": "%s-%s", "clientCertificateData": "C"}}' "$1" "$WHO" """
    plugin(config, script, args=["of"], env=[{"name": "WHO", "value": "ada"}])
    found = find_access({"PATH": "/usr/bin:/bin"}, kubeconfig=config).credentials
    assert (found.token, found.certificate) == ("of-ada", b"C")


@cases("failing_plugins")
def test_a_plugin_that_fails_shows_nothing_of_it(config: Path, script: str, said: str) -> None:
    plugin(config, script)
    with pytest.raises(AccessDenied, match=said) as raised:
        find_access({"PATH": "/usr/bin:/bin"}, kubeconfig=config)
    assert "a-secret" not in str(raised.value) + raised.value.hint


def test_a_plugin_with_odd_arguments_is_run_without_them(config: Path) -> None:
    plugin(config, "exit $(($# + 4))", args=5, env=True)
    with pytest.raises(AccessDenied, match="status 4"):
        find_access({"PATH": "/usr/bin:/bin"}, kubeconfig=config)

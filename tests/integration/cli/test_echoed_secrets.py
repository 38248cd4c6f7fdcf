"""A server that answers with all that it was sent gets no secret into what a command makes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
import urllib3

from tests.live.api_server import api_process
from tests.support.cases import cases
from tests.support.commandline import TINY, Packager
from tests.support.doubles.hostile import HostileServer, Request, reply
from tests.support.sagemaker_bodies import AWQ
from tests.support.spellings import spellings

SECRET = "sk-Canary/Of+The=Server"
MAPPED = "s3://jumpstart-cache-prod-us-east-1/packager"
SERVER = ("--instance", "local", "--ui", "--jumpstart", f"meta-tiny={TINY}")
MODELS = json.dumps({"data": [{"id": "tiny"}]})


class Echo:
    """Answers with one status; in headers and body is what came.

    `answers` are those of a server that works, by the end of a path.
    """

    def __init__(self, status: int, answers: Mapping[str, str]) -> None:
        self.status = status
        self.answers = {"/v1/models": MODELS, **answers}

    def __call__(self, request: Request) -> bytes:
        for path, answer in self.answers.items():
            if request.path.endswith(path):
                return reply(answer.encode(), Content_Type="application/json")
        sent = request.header("Authorization") or request.header("X-Amz-Security-Token")
        sent = sent or request.body.decode("latin-1")
        if not sent:
            return reply(status=401, WWW_Authenticate='Basic realm="it"')
        given = sent.rpartition(" ")[2]
        plain = ""
        with suppress(ValueError):
            plain = base64.b64decode(given).decode("latin-1")
        echo = f"{sent} {given} {quote(given, safe='')} {plain} {request.head}"
        document = {
            "message": echo,
            "error": {"message": echo, "code": given},
            "errors": [{"code": given, "message": plain}, {"code": plain.partition(":")[2]}],
            "id": given,
            "token": "",
            "__type": given,
            "Message": echo,
        }
        line = " ".join(sent.split())
        headers = {"X_Echo": line, "X_Error_Code": given, "X_Error_Message": given}
        headers |= {"Content_Type": f"application/json; of={given}", "Docker_Content_Digest": given}
        body = json.dumps(document)
        if "/s3/aws4_request" in sent:
            told = f"<Code>{escape(given)}</Code><Message>{escape(echo)}</Message>"
            body = f"<Error>{told}</Error>"
        return reply(body.encode(), self.status, **headers)


@pytest.mark.extended
@cases("commands", variable="", secret=SECRET, before=(), files={}, more={}, answers={})
def test_a_server_that_echoes_gets_no_secret_out(
    words: tuple[str, ...],
    status: int,
    packager: Packager,
    own_place: Path,
    tmp_path: Path,
    variable: str,
    secret: str,
    before: tuple[tuple[str, ...], ...],
    files: dict[str, str],
    more: dict[str, str],
    answers: dict[str, str],
) -> None:
    docker = own_place / "login"
    docker.mkdir()
    login = base64.b64encode(f"user:{secret}".encode()).decode()
    with HostileServer(Echo(status, answers)) as server:
        (docker / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": login}}}))
        (own_place / "kubeconfig").write_text(_kubeconfig(server.url, secret))
        places = {
            "url": server.url,
            "host": server.host,
            "named": server.url.replace("//", f"//user:{quote(secret, safe='')}@"),
            "tiny": str(TINY),
            "kubeconfig": str(own_place / "kubeconfig"),
            "secret": secret,
            "work": str(tmp_path),
        }
        for name, text in files.items():
            (tmp_path / name).write_text(text.replace("{tiny}", str(TINY)))
        environment = {
            "DOCKER_CONFIG": str(docker),
            "HF_ENDPOINT": server.url,
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "AKIA0",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_REGION": "us-east-1",
            "PACKAGER_DEBUG": "1",
            **({variable: secret} if variable else {}),
            **{name: text.format(**places) for name, text in more.items()},
        }
        for command in before:
            packager(*(word.format(**places) for word in command), env=environment, status=0)
        done = packager(*(word.format(**places) for word in words), env=environment)
    assert done.status != 70, done.err
    assert any(
        one in request.head + request.body.decode("latin-1")
        for request in server.requests
        for one in (secret, login)
    )
    texts = {"stdout": done.out.encode(), "stderr": done.err.encode()}
    for path in own_place.rglob("*"):
        if path.is_file() and path.parent != docker and path.name != "kubeconfig":
            texts[str(path)] = path.read_bytes()

    assert [
        place for place, text in texts.items() for one in spellings(secret) if one in text
    ] == []


@pytest.mark.extended
def test_a_server_of_jobs_keeps_what_its_own_servers_repeat(own_place: Path) -> None:
    """Of jobs that fail: the pages, the log, the description and every file of the server."""
    host = {"AWS_ACCESS_KEY_ID": "AKIA0", "AWS_SECRET_ACCESS_KEY": "x"}
    token = "hf_" + "Canary0Token" * 3
    bodies = {
        "bucket": {},
        "hub": {
            "ModelSource": {"S3": {"S3Uri": f"{MAPPED}/meta-tiny/"}},
            "OptimizationEnvironment": {
                "HF_TOKEN": token,
                "OPTION_CALIB_DATASET": "hf://datasets/a/b@main",
            },
        },
    }
    with HostileServer(Echo(403, {})) as echo:
        own = {"AWS_ENDPOINT_URL_S3": echo.url, "HF_ENDPOINT": echo.url, **host}
        own |= {"AWS_SESSION_TOKEN": SECRET, "PACKAGER_DEBUG": "1"}
        with api_process(own_place, *SERVER, **own) as api:
            sagemaker = api.client("sagemaker")
            texts = {}
            for name, more in bodies.items():
                sagemaker.create_optimization_job(**{**AWQ, "OptimizationJobName": name, **more})
                with pytest.raises(AssertionError):
                    api.ended(name, 120)
                told = sagemaker.describe_optimization_job(OptimizationJobName=name)
                texts[f"{name} described"] = json.dumps(told, default=str).encode()
                texts[f"{name} log"] = api.job_log(name).encode()
                assert told["OptimizationJobStatus"] == "FAILED"
                page = f"/ui/jobs/optimization/{name}"
                for path in ("/ui/jobs", page, f"{page}/log", "/ui/caches"):
                    found = urllib3.request("GET", f"{api.url}{path}", timeout=60)
                    assert found.status == 200, path
                    texts[f"{name} {path}"] = found.data
    assert [
        any(secret in request.head for request in echo.requests) for secret in (SECRET, token)
    ] == [True, True]
    files = {str(path): path.read_bytes() for path in own_place.rglob("*") if path.is_file()}

    assert [
        place
        for place, text in {**texts, **files}.items()
        for secret in (SECRET, token)
        for one in spellings(secret)
        if one in text
    ] == []


def _kubeconfig(url: str, token: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": url}}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
    )

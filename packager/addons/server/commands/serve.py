"""`packager api start`, also known as `packager serve`."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from packager.addons.deploy.sagemaker.shapes import service_model
from packager.addons.server.application import Journal, make_application
from packager.addons.server.clients import RunningServer
from packager.addons.server.commands.job_options import dataset_option, job_options, job_settings
from packager.addons.server.hosts import DEFAULT_PORT, Listen, parse_listen
from packager.addons.server.keys import ID_VARIABLE, take_keys
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.server import run_server, server_lock, tls_context
from packager.addons.server.wiring.server import open_server
from packager.catalog.machine import nvidia_devices
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, note_lines, note_log, print_json, print_value, warn
from packager.cli.wiring.settings import server_state
from packager.core.errors import PackagerError, UsageError

_KEY_HINT = (
    f"name a file of access keys with --keys, or set {ID_VARIABLE} and its secret; "
    "docs/serve.md says more"
)


@click.command()
@click.option(
    "--listen",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen at; port 0 takes a free one.",
)
@job_options
@dataset_option
@click.option(
    "--jobs",
    "jobs_at_once",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="How many jobs run at once.",
)
@click.option(
    "--keys",
    "keys_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Access keys in the format of AWS's credentials; every request must be signed then.",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Certificate with its chain, as PEM.",
)
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its key, as PEM.")
@click.option(
    "--insecure-http",
    is_flag=True,
    help="Allow plain HTTP beyond this machine: what is said there can be read by others.",
)
@click.option(
    "--ui",
    is_flag=True,
    help="Also answer a browser on this machine: pages of jobs, benchmarks and endpoints at /ui.",
)
@click.option(
    "--capture-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Let endpoints write captures below this directory (file:///DIR/…), not to buckets alone.",
)
@click.option("--log-requests", is_flag=True, help="Write a line for each request to stderr.")
@format_option
def serve(
    listen: str,
    jobs_at_once: int,
    keys_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure_http: bool,
    ui: bool,
    capture_dir: Path | None,
    log_requests: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Answer the SageMaker API on this machine: jobs, models, endpoints.

    boto3, the AWS CLI and the SageMaker SDKs use it unchanged, by the variables
    of `packager api env`. Jobs go on when the server ends, and when it is killed.

    Beyond loopback, requests must be signed with configured keys, over TLS.

    \b
    packager api start --instance local --images docker:jobs
    packager serve --jobs 2
    AWS_ENDPOINT_URL_SAGEMAKER=http://127.0.0.1:8470 aws sagemaker list-optimization-jobs
    """
    settings = replace(
        job_settings(given), captures=str(capture_dir.absolute()) if capture_dir else ""
    )
    at = parse_listen(listen)
    keys = take_keys(keys_file, os.environ)
    if ui:
        _check_pages(at, signed=bool(keys))
    tls = _tls(tls_cert, tls_key)
    if not at.is_loopback:
        _check_reached(listen, has_keys=bool(keys), is_private=tls is not None or insecure_http)
    service_model()
    with (
        server_lock(server_state(os.environ)) as note_server,
        open_server(
            settings,
            environment=os.environ,
            keys=keys,
            on_loopback=at.is_loopback,
            jobs_at_once=jobs_at_once,
            gpus=nvidia_devices(),
            on_error=_tell,
        ) as opened,
    ):
        application = make_application(
            opened.services,
            guard=opened.guard,
            with_pages=ui,
            journal=Journal(failure=_tell_failure, access=_tell_access if log_requests else None),
        )
        scheme = "https" if tls else "http"

        def ready(bound: Listen) -> None:
            here = Listen("localhost", bound.port) if bound.is_any else bound
            note_server(_server_at(here.url(scheme), settings, signed=bool(keys)))
            shown = Listen("HOST", bound.port) if bound.is_any else bound
            _introduce(
                bound.url(scheme),
                _variables(shown.url(scheme), settings.region),
                signed=bool(keys),
                ui=ui,
                as_json=output_format == "json",
            )

        asyncio.run(run_server(application, at, tls=tls, ready=ready))
    note("the server has ended; jobs that run go on")


def _check_reached(listen: str, *, has_keys: bool, is_private: bool) -> None:
    """Refuse to listen for other machines without signatures or TLS."""
    if not has_keys:
        raise UsageError(
            f"{listen!r} is reached from other machines, and no access keys are configured",
            hint=_KEY_HINT,
        )
    if not is_private:
        raise UsageError(
            f"{listen!r} is reached from other machines, and there is no certificate",
            hint="give --tls-cert and --tls-key; behind a proxy with TLS, say --insecure-http",
        )


def _check_pages(at: Listen, *, signed: bool) -> None:
    """Refuse pages where others reach them, or where only signed requests are answered."""
    if signed or not at.is_loopback:
        raise UsageError(
            "--ui is for whoever is on this machine, and asks for no key",
            hint="listen at 127.0.0.1 without access keys; from elsewhere, forward the port: "
            f"`ssh -L {at.port}:127.0.0.1:{at.port} HOST`",
        )


def _server_at(url: str, settings: JobSettings, *, signed: bool) -> RunningServer:
    """Return the server's description for `packager api env`."""
    return RunningServer(
        url=url,
        region=settings.region,
        account=settings.account,
        is_signed=signed,
        s3=os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", ""),
    )


def _variables(url: str, region: str) -> dict[str, str]:
    """Return the variables by which boto3 uses this server."""
    return {
        "AWS_ENDPOINT_URL_SAGEMAKER": url,
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": url,
        "AWS_DEFAULT_REGION": region,
    }


def _introduce(
    url: str, variables: Mapping[str, str], *, signed: bool, ui: bool, as_json: bool
) -> None:
    if as_json:
        document = {"url": url, "signatures_required": signed, "environment": dict(variables)}
        print_json(document | ({"ui": f"{url}/ui"} if ui else {}))
        return
    print_value(url)
    credentials = "an access key of this server" if signed else "any access key, such as `test`"
    note_lines(
        [
            *([f"pages for people are at {url}/ui"] if ui else ()),
            "the SageMaker API is at this address; set, for boto3, the AWS CLI and the SDKs:",
            *(f"  export {name}={value}" for name, value in variables.items()),
            f"and {credentials}; for SageMaker's SDKs, `packager api env` prints what they need.",
            "Ctrl-C ends the server; jobs that run go on",
        ]
    )


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("only one of --tls-cert and --tls-key is given", hint="give both")
    return tls_context(certificate, key)


def _tell(error: PackagerError) -> None:
    warn(error.message)


def _tell_failure(text: str) -> None:
    first, _, rest = text.partition("\n")
    note(f"error: {first}")
    note_log(rest)


def _tell_access(line: str) -> None:
    note(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}")

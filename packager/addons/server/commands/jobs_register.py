"""`packager jobs register-model`: the last stage of a job whose result is to be a model.

Jobs run it, not users. It may be killed and run again: an equal model that exists is kept.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from packager.addons.deploy.sagemaker.api_refusals import ResourceInUse
from packager.addons.server.resources import ResourceStore
from packager.addons.server.sagemaker.answers import finished_model
from packager.addons.server.sagemaker.optimization import MODEL_KIND
from packager.addons.server.sagemaker.settings import JobSettings
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_value
from packager.cli.wiring.settings import server_state
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import UsageError
from packager.core.files.user_files import read_user_file
from packager.pipeline.records import load_record

_HINT = "the job wrote it: run the job again"


@click.command("register-model", hidden=True)
@click.option(
    "--model",
    "model_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="Body of CreateModel, without an image.",
)
@click.option(
    "--record",
    "record_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="Record of the build whose image it is.",
)
@click.option("--region", metavar="REGION", required=True, help="Region in its ARN.")
@click.option("--account", metavar="DIGITS", required=True, help="Account in its ARN.")
@format_option
def register_model(
    model_file: Path, record_file: Path, region: str, account: str, output_format: str
) -> None:
    """Keep the model that a build made where the server keeps those of CreateModel."""
    data = read_user_file(model_file, what="the model", hint=_HINT)
    try:
        body = finished_model(parse_object(data), load_record(record_file))
    except NotStrict as error:
        raise UsageError(f"the model cannot be read: {error}", hint=_HINT) from error
    name = body["ModelName"]
    arn = JobSettings(region=region, account=account).arn(MODEL_KIND, name)
    store = ResourceStore(server_state(os.environ) / "resources.sqlite")
    try:
        store.create(MODEL_KIND, name, body, arn=arn)
    except ResourceInUse:
        if store.get(MODEL_KIND, name).document != body:
            raise
    finally:
        store.close()
    if output_format == "json":
        print_json({"ModelArn": arn})
    else:
        print_value(arn)

"""`packager deploy`: a lazy group of platforms, each in a module beside this one."""

from __future__ import annotations

import click

from packager.cli.lazy import LazyGroup

# heading → name → (module:function, what `--help` says)
SECTIONS = {
    "Platforms": {
        "sagemaker": (
            "packager.addons.deploy.commands.deploy_sagemaker:sagemaker",
            "Deploy to an endpoint of Amazon SageMaker.",
        ),
        "compose": (
            "packager.addons.deploy.commands.deploy_compose:compose",
            "Deploy on this machine, by Docker Compose.",
        ),
        "kubernetes": (
            "packager.addons.deploy.commands.deploy_kubernetes:kubernetes",
            "Deploy to a cluster of Kubernetes.",
        ),
        "kserve": ("packager.addons.deploy.commands.deploy_kserve:kserve", "Deploy to KServe."),
        "hyperpod": (
            "packager.addons.deploy.commands.deploy_hyperpod:hyperpod",
            "Deploy to SageMaker HyperPod.",
        ),
    }
}


class Platforms(LazyGroup):
    """Every platform, one file each."""

    sections = SECTIONS


@click.group(cls=Platforms)
def deploy() -> None:
    """Deploy an image where it serves: render, apply, watch, ask, delete.

    IMAGE|RECORD is HOST/REPOSITORY:TAG, oci:DIR[:TAG], docker:NAME or the file of a build record.
    `render` prints what the others would send, and sends nothing.

    \b
    packager deploy sagemaker render r.example/team/model:1 --role-arn arn:aws:iam::…:role/serve
    packager deploy PLATFORM COMMAND --help
    """

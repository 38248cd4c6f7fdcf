"""`packager deploy kubernetes`."""

from __future__ import annotations

import click

from packager.addons.deploy.commands.deploy_admission import policy
from packager.addons.deploy.commands.deploy_cluster import add_commands
from packager.addons.deploy.commands.deploy_cluster_options import CAPTURE, PODS, SCALING
from packager.addons.deploy.kubernetes.live import KUBERNETES


@click.group()
def kubernetes() -> None:
    """Deploy to a cluster of Kubernetes 1.31 to 1.37.

    The cluster is found as kubectl finds it: KUBECONFIG, ~/.kube/config, the pod's account.
    Credentials of the server are named with --env-from-secret; no file shows one.

    \b
    Status: 0 done; 2 wrong arguments, or the cluster refuses an object; 3 the image does not fit;
    4 it does not answer; 66 no such deployment or image; 69 it failed, or did not settle in
    time; 77 access denied.
    """


add_commands(kubernetes, KUBERNETES, PODS, SCALING, CAPTURE)
kubernetes.add_command(policy)

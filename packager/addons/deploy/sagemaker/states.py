"""States of endpoints and inference components, as AWS spells them."""

from __future__ import annotations

from collections.abc import Mapping

from packager.core.deployment import DeployState

STATES: Mapping[str, DeployState] = {
    "InService": "ready",
    "Creating": "creating",
    "Updating": "updating",
    "SystemUpdating": "updating",
    "RollingBack": "rolling-back",
    "Deleting": "ending",
    "Failed": "failed",
    "OutOfService": "failed",
    "UpdateRollbackFailed": "failed",
}
SETTLED = frozenset({"ready", "failed", "absent"})

"""Errors of CloudWatch Logs."""

from __future__ import annotations

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal


class InvalidParameter(ApiRefusal):
    """A parameter of the logs' API is missing or wrong."""

    type = "InvalidParameterException"


class LogMissing(ApiRefusal):
    """The group or stream of logs does not exist."""

    type = "ResourceNotFoundException"

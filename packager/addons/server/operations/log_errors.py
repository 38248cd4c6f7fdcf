"""Errors of CloudWatch Logs."""

from __future__ import annotations

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal


def invalid_parameter(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: a parameter of the logs' API is missing or wrong."""
    return ApiRefusal(message, hint=hint, type="InvalidParameterException")


def log_missing(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the group or stream of logs does not exist."""
    return ApiRefusal(message, hint=hint, type="ResourceNotFoundException")

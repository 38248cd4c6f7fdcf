"""Requests of STS and IAM that SDKs send, in those services' protocol: forms in, XML out.

Roles have no effect on this server: every authorized client may do everything, and jobs use the
server's own credentials. So every role exists, and every action is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from aiohttp import web

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal
from packager.addons.server.sagemaker.operations import row_of
from packager.addons.server.sagemaker.settings import JobSettings

_FORM = "application/x-www-form-urlencoded"
_MAX_FORM = 64 * 1024
_MAX_FIELDS = 1000
_ROLE = re.compile(r"[A-Za-z0-9+=,.@_-]{1,64}")
_ACTION = re.compile(r"[A-Za-z0-9:*-]{3,128}")
_SESSION = re.compile(r"[^A-Za-z0-9+=,.@_-]+")
_ROLE_ID = "AROA00000000PACKAGER"
CALLERS_ROLE = "packager"  # of every caller
_STS = "https://sts.amazonaws.com/doc/2011-06-15/"
_IAM = "https://iam.amazonaws.com/doc/2010-05-08/"
_TRUST = (
    "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C"
    "%22Principal%22%3A%7B%22Service%22%3A%22sagemaker.amazonaws.com%22%7D%2C"
    "%22Action%22%3A%22sts%3AAssumeRole%22%7D%5D%7D"
)


def is_query(content_type: str | None) -> bool:
    """Return whether a request is of the query protocol."""
    return (content_type or "").partition(";")[0].strip().lower() == _FORM


def answer_query(
    body: bytes, settings: JobSettings, request_id: str, *, service: str, caller: str
) -> web.Response:
    """Answer a request of STS or IAM, or say what is done with another service's.

    `service` is what the request is signed for, `caller` the name of its key, "" where none is
    verified.
    """
    try:
        if len(body) > _MAX_FORM:
            raise ValueError("too long")
        form = parse_qs(body.decode("ascii"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        return _error(400, "MalformedQueryString", "the form cannot be read", request_id)
    fields = {name: values[0] for name, values in form.items()}
    action = fields.get("Action", "")
    if action == "GetCallerIdentity":
        return _answer(action, _STS, _identity(settings, caller), request_id)
    if action in _OF_ROLES:
        name = fields.get("RoleName", "")
        if not _ROLE.fullmatch(name):
            return _error(400, "ValidationError", "the role's name is invalid", request_id)
        return _answer(action, _IAM, _OF_ROLES[action](name, settings), request_id)
    if action == "SimulatePrincipalPolicy":
        actions = [v for name, v in fields.items() if name.startswith("ActionNames.member.")]
        if not all(_ACTION.fullmatch(one) for one in actions):
            return _error(400, "ValidationError", "an action's name is invalid", request_id)
        return _answer(action, _IAM, _allowed(actions), request_id)
    says = row_of(service, action).says
    return _error(400, "InvalidAction", f"{escape(action[:128])}: {says}", request_id)


def refused_query(refusal: ApiRefusal, request_id: str) -> web.Response:
    """Return the answer to a request of the query protocol that is refused."""
    return _error(refusal.http_status, refusal.type, refusal.message, request_id)


def no_buckets(request_id: str) -> web.Response:
    """Answer a request for S3, which clients send here where one address is set for everything."""
    return _s3_error(501, "NotImplemented", row_of("s3", "*").says, request_id)


def no_object(request_id: str) -> web.Response:
    """Answer a request for an object that JumpStart's bucket does not have here."""
    says = "no such object: ids of JumpStart are mapped with --jumpstart"
    return _s3_error(404, "NoSuchKey", says, request_id)


def _s3_error(status: int, code: str, says: str, request_id: str) -> web.Response:
    fields = _tags({"Code": code, "Message": says, "RequestId": request_id})
    text = f"<Error>{fields}</Error>"
    return web.Response(status=status, text=text, content_type="application/xml")


def _identity(settings: JobSettings, caller: str) -> str:
    """Return an assumed role, of which `get_execution_role()` of the SDKs makes a role."""
    account, session = settings.account, _SESSION.sub("-", caller)[:64] or "session"
    return _tags(
        {
            "Arn": f"arn:aws:sts::{account}:assumed-role/{CALLERS_ROLE}/{session}",
            "UserId": f"{_ROLE_ID}:{session}",
            "Account": account,
        }
    )


def _role(name: str, settings: JobSettings) -> str:
    role = _tags(
        {
            "Path": "/",
            "RoleName": name,
            "RoleId": _ROLE_ID,
            "Arn": f"arn:aws:iam::{settings.account}:role/{name}",
            "CreateDate": "1970-01-01T00:00:00Z",
            "AssumeRolePolicyDocument": _TRUST,
        }
    )
    return f"<Role>{role}</Role>"


def _nothing(_: str, __: JobSettings) -> str:
    return ""


def _none_of(member: str) -> Callable[[str, JobSettings], str]:
    return lambda _, __: f"<{member}/><IsTruncated>false</IsTruncated>"


# Operations on a role → the answer's result, as XML.
_OF_ROLES: Mapping[str, Callable[[str, JobSettings], str]] = {
    "GetRole": _role,
    "CreateRole": _role,
    **dict.fromkeys(
        (
            "AttachRolePolicy",
            "PutRolePolicy",
            "DetachRolePolicy",
            "DeleteRolePolicy",
            "DeleteRole",
        ),
        _nothing,
    ),
    "ListAttachedRolePolicies": _none_of("AttachedPolicies"),
    "ListRolePolicies": _none_of("PolicyNames"),
}


def _allowed(actions: list[str]) -> str:
    results = "".join(
        "<member>"
        + _tags({"EvalActionName": one, "EvalResourceName": "*", "EvalDecision": "allowed"})
        + "</member>"
        for one in actions
    )
    return f"<EvaluationResults>{results}</EvaluationResults><IsTruncated>false</IsTruncated>"


def _answer(action: str, space: str, result: str, request_id: str) -> web.Response:
    text = (
        f'<{action}Response xmlns="{space}"><{action}Result>{result}</{action}Result>'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{action}Response>"
    )
    return web.Response(text=text, content_type="text/xml")


def _error(status: int, code: str, message: str, request_id: str) -> web.Response:
    fields = _tags({"Type": "Sender", "Code": code, "Message": message})
    text = (
        f"<ErrorResponse><Error>{fields}</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return web.Response(status=status, text=text, content_type="text/xml")


def _tags(values: Mapping[str, str]) -> str:
    return "".join(f"<{name}>{escape(value)}</{name}>" for name, value in values.items())

"""Whether an existing tag may be moved, by a registry's own read-only API.

A trial write would be wrong: storing a tag's own manifest again would undo another builder's
update.  Without an API, the registry's answer to the last request of a push decides: the layers are
stored by then, and are not sent again for another tag.

Harbor: `listTags` of API v2.0 (goharbor/harbor api/v2.0/swagger.yaml), `immutable` of a tag.
Amazon ECR: `DescribeRepositories`, in `ecr`.  Docker Hub, Quay and Google's have such a setting,
too; their APIs are at other hosts and want other credentials than `docker login` has.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from packager.core.errors import PackagerError
from packager.images.registry.auth import pull
from packager.images.registry.ecr import has_fixed_tag

if TYPE_CHECKING:
    from packager.images.registry.client import RegistryClient

_HARBOR = "harbor-registry"  # the service that its challenges name
_LONGEST_ANSWER = 1024 * 1024
_ASKING_S = 10.0


def is_immutable(client: RegistryClient, repository: str, tag: str) -> bool:
    """Whether the registry states that an existing tag is immutable; at most one request.

    False if it may be moved, or this is unknown: a refused request is not an error.
    """
    if client.auth.service == _HARBOR:
        return _is_immutable_at_harbor(client, repository, tag)
    return has_fixed_tag(client.host, repository, tag)


def _is_immutable_at_harbor(client: RegistryClient, repository: str, tag: str) -> bool:
    project, _, name = repository.partition("/")
    authorization = client.auth.basic(pull(repository))
    query = urlencode({"with_immutable_status": "true", "q": f"name={tag}", "page_size": 100})
    # swagger.yaml: "If it contains slash, encode it twice over with URL encoding."
    address = client.api_url(
        f"/api/v2.0/projects/{quote(project, safe='')}/repositories/"
        f"{quote(quote(name, safe=''), safe='')}/artifacts/{tag}/tags?{query}"
    )
    try:
        answer = client.transport.call(
            "GET",
            address,
            headers={"Authorization": authorization} if authorization else {},
            attempts=1,
            read_timeout_s=_ASKING_S,
        )
        tags = json.loads(answer.read(_LONGEST_ANSWER)) if answer.status == 200 else []
        answer.close()
    except (PackagerError, ValueError, RecursionError):
        return False
    return isinstance(tags, list) and any(
        isinstance(one, dict) and one.get("name") == tag and one.get("immutable") is True
        for one in tags
    )

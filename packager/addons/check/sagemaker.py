"""Variables that the SageMaker images' entrypoints make options of: `SM_VLLM_…`, `SM_SGLANG_…`.

A name is lowered and its underscores become dashes.  `true` is a bare option, `false` leaves the
option out, and an empty value makes a bare option as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packager.addons.check.arguments import Arguments, Given
from packager.addons.check.plain import holds_secret
from packager.addons.check.values import Remark, Setting
from packager.core.documents import shorten
from packager.core.findings import VARIABLE, Finding
from packager.core.positions import Place
from packager.engines.sagemaker import check_limits
from packager.engines.schema import EngineSchema, Option

SWITCHES = {"flag", "switch"}

# Switches of vLLM that are on unless they are turned off: leaving out a `false` leaves them on.
# Source: vLLM 0.27.1 sdist, config/{cache,load,model,scheduler}.py and
# entrypoints/openai/cli_args.py; read 2026-11-22.
ON_BY_DEFAULT = frozenset(
    {
        "disable-cascade-attn",
        "enable-chunked-prefill",
        "enable-log-deltas",
        "enable-prefix-caching",
        "scheduler-reserve-full-isl",
        "use-tqdm-on-load",
    }
)


def image_options(env: Sequence[Setting], prefix: str, schema: EngineSchema) -> Arguments:
    """Return the options that an entrypoint makes of variables, and what it drops of them."""
    found = Arguments()
    for setting in env:
        if not setting.name.startswith(prefix):
            continue
        name = setting.name.removeprefix(prefix).lower().replace("_", "-")
        option = schema.find(name)
        negated = schema.find(name.removeprefix("no-")) if name.startswith("no-") else None
        value = (setting.value or "").strip().lower()
        if value == "false":
            found.remarks += _left_out(setting, option, prefix)
            continue
        given: str | bool | None = setting.value
        if option is None and negated is not None and negated.type == "switch":
            option, given = negated, False
        elif value == "true" or setting.value == "":
            given = True
        found.given.append(
            Given(
                name=option.name if option is not None else name,
                spelled=setting.name,
                place=setting.place,
                value=given,
            )
        )
    return found


def check_request(env: Sequence[Setting], place: Place) -> Iterator[Remark]:
    """Find the variables of an environment that SageMaker would refuse."""
    values = {setting.name: setting.value or "" for setting in env}
    places = {setting.name: setting.place for setting in env}
    for finding in check_limits(values, hint="give fewer or shorter ones, or bake them in"):
        variable = finding.data.get(VARIABLE)
        yield Remark(places[variable] if isinstance(variable, str) else place, finding)


def check_unread(env: Sequence[Setting], prefix: str, why: str) -> Iterator[Remark]:
    """Find variables that the image's entrypoint does not look at."""
    for setting in env:
        if setting.name.startswith(prefix):
            message = f"{setting.name!r} is not read: {why}"
            hint = "write the option on the command line"
            yield Remark(setting.place, Finding("error", "key-dropped", message, hint))


def _left_out(setting: Setting, option: Option | None, prefix: str) -> Iterator[Remark]:
    if option is None:
        message = f"{shorten(setting.name, 60)} is not an option, and `false` leaves it out anyway"
        yield Remark(setting.place, Finding("warning", "key-dropped", message, "leave it out"))
    elif option.type not in SWITCHES:
        message = f"the image drops {setting.name!r}: a value of `false` leaves the option out"
        yield Remark(setting.place, Finding("error", "key-dropped", message, "give its value"))
    elif option.type == "switch":
        is_on = option.name in ON_BY_DEFAULT
        stays = "stays on" if is_on else "keeps its default"
        message = f"the image leaves {setting.name!r} out for its `false`: {option.name!r} {stays}"
        variable = f"{prefix}NO_{option.name.upper().replace('-', '_')}"
        hint = f"set {variable}=true to turn it off, or leave it out"
        found = Finding("error" if is_on else "warning", "false-left-out", message, hint)
        yield Remark(setting.place, found)


def without_secrets(given: Sequence[Given]) -> list[Given]:
    """Return the options whose values a message may show."""
    return [
        one
        for one in given
        if not isinstance(one.value, str) or not holds_secret(one.name, one.value)
    ]

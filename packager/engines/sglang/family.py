"""The SGLang family, on GPUs; see `render` for variables and command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.request import MOST_NODES
from packager.core.serving import ServingConfig
from packager.core.stopping import Stopping
from packager.core.traits import EngineTraits
from packager.engines.adapters import adapter_traits
from packager.engines.capability import check_capability
from packager.engines.prequantized import check_arrived
from packager.engines.rules import plan_facts
from packager.engines.sagemaker import check_environment
from packager.engines.schema import find_schema
from packager.engines.sglang.check import check_draft, check_options
from packager.engines.sglang.render import (
    ALGORITHM,
    PORT,
    command,
    environment,
    is_by_environment,
    option_name,
    options,
    planned,
    schema_of,
    server_address,
)
from packager.engines.shared import (
    SGLANG_LAYOUT,
    check_engine_options,
    check_input_limit,
    check_layout_options,
    draft_dir,
    model_dir,
)
from packager.engines.supported_models import check_listed
from packager.engines.traits import engine_traits
from packager.engines.vllm.check import check_proven
from packager.engines.vllm.render import launched
from packager.engines.vllm.traits import REASONING_PARSER, TOOL_PARSER, parsers_of

# It looks every 5 s whether the last request has ended, then gives its processes 15 s.
STOPPING = Stopping(
    drain_s=None,
    after_s=20,
    source="SGLang 0.5.5 to 0.5.23, TokenizerManager.sigterm_watchdog",
)

CONFIG = "config"  # names a file with further options, which would not be checked

NUMERIC = ("int", "float")  # types of options that hold a number alone


class SglangFamily:
    """Describes images whose server is SGLang."""

    name = "sglang"

    def traits(self, container: ContainerFacts) -> EngineTraits:
        """Return the layouts that SGLang can start.

        `--dp-size` alone copies the whole model.  With `--enable-dp-attention` the copies are
        of attention only, inside the `--tp-size` devices, which hold the experts together.
        """
        schema = find_schema("sglang", container.engine_version)
        has = schema.options.keys()
        return replace(
            engine_traits(container),
            who=f"SGLang {container.engine_version}".strip(),
            health_path="/ping",  # /health makes it generate a token (http_server.py)
            pipeline="pp-size" in has,
            data_parallel="dp-size" in has,
            own_experts="dp-size" in has,
            dp_attention="enable-dp-attention" in has,
            dp_attention_drafts=frozenset({"eagle", "eagle3", "mtp"}),
            expert_parallel="ep-size" in has,
            most_nodes=MOST_NODES if "nnodes" in has else 1,
            node_options="`--nnodes N --node-rank K --dist-init-addr HOST:PORT`",
            tool_parsers=parsers_of(schema, TOOL_PARSER),
            reasoning_parsers=parsers_of(schema, REASONING_PARSER),
            stopping=STOPPING,
            adapters=adapter_traits(container.engine, container.engine_version),
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Yield findings for settings that the server refuses, ignores or does not enforce."""
        yield from check_input_limit(plan, "SGLang")
        schema = schema_of(plan)
        yield from check_proven("SGLang", plan, schema)
        yield from check_arrived("SGLang", plan)
        yield from check_listed("SGLang", plan)
        spelled = {name: option_name(name, schema) for name, _ in plan.engine_options}
        numbers = [name for name, row in schema.options.items() if row.type in NUMERIC]
        yield from check_layout_options(spelled, SGLANG_LAYOUT)
        yield from check_engine_options(
            plan, planned(plan) | server_address(), spelled, numbers=numbers
        )
        if CONFIG in spelled.values():
            message = f"{CONFIG!r} takes options from a file, which packager would not check"
            yield Finding("error", "options-conflict", message, "give the options themselves")
        yield from check_draft(plan, schema)
        by_environment = is_by_environment(plan)
        yield from check_options(
            options(plan),
            schema,
            plan_facts(plan),
            version=plan.container.engine_version,
            one_word=by_environment,
            judged={ALGORITHM} if plan.draft is not None else (),  # above, in the draft's words
        )
        version = plan.container.engine_version
        yield from check_capability("SGLang", "sglang", version, options(plan), plan_facts(plan))
        if by_environment:
            yield from check_environment(plan, environment(plan))

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Return environment variables; for upstream's image, the command line."""
        if is_by_environment(plan):
            config = ServingConfig(env=environment(plan), port=PORT)
        else:
            config = launched(command(plan), {}, adapter=False)
        return replace(config, model_dir=model_dir(plan), draft_dir=draft_dir(plan))

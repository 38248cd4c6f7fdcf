"""The golden cases: a request each, with the headers of its model and draft."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.core.facts import Facts
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.drafts.request import parse_draft
from packager.planning.planner import make_plan
from packager.plugins.tables import FAMILIES
from packager.ports import ContainerFamily
from tests.golden.models import (
    EAGLE3,
    GEMMA,
    LLAMA_8B,
    LLAMA_8B_AWQ,
    LLAMA_70B,
    LLAMA_70B_AWQ,
    LLAMA_MEDUSA,
    MIXTRAL,
    MIXTRAL_AWQ,
    MIXTRAL_MEDUSA,
    QWEN,
    QWQ,
    SMALL,
)
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, model_of
from tests.support.heads import dflash_of_speculators, peagle_of_speculators
from tests.support.mtp_models import qwen3_5, qwen3_next


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request, and what `resolve` would have found."""

    id: str
    model: ModelFiles
    instance: str | Instance
    family: str | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    draft: ModelFiles | None = None

    @property
    def facts(self) -> Facts:
        found = find_instance(self.instance) if isinstance(self.instance, str) else self.instance
        version = self.asked.get("container_version")
        return Facts(
            request=BuildRequest(
                model=self.model.ref.name, instance=found.name, family=self.family, **self.asked
            ),
            model=self.model,
            instance=found,
            container=find_container(
                self.family, found.kind, version=version, instance_name=found.name
            ),
            base=None,
            packager_version="0.1.0",
            draft=self.draft,
            draft_asked=parse_draft(self.asked.get("draft")),
        )

    @property
    def plan(self) -> Plan:
        facts = self.facts
        return make_plan(facts, family_of(facts.container.family), accelerator_of=accelerator_of)


def family_of(name: str) -> ContainerFamily:
    """The family of that name."""
    family: ContainerFamily = FAMILIES.find(name).make()
    return family


MOUNTED = {"weights": "mounted"}
SHORT = {"max_batch": 8, "max_input_tokens": 2048, "max_total_tokens": 4096}

CASES = (
    Case(id="tiny-local-vllm", model=model_of(TINY), instance=LOCAL_CPU),
    Case(
        id="qwen3.5-27b-g6e-vllm-mtp",
        model=qwen3_5(),
        instance="ml.g6e.12xlarge",
        family="vllm",
        asked=SHORT | {"draft": "mtp"},
    ),
    Case(
        id="qwen3-next-p4d-lmi-16-mtp",
        model=qwen3_next(),
        instance="ml.p4d.24xlarge",
        family="lmi",
        asked=SHORT | {"draft": "mtp:2", "container_version": "16"},
    ),
    Case(
        id="qwen3.5-27b-g6e-sglang-mtp",
        model=qwen3_5(),
        instance="ml.g6e.12xlarge",
        family="sglang",
        asked=SHORT | {"draft": "mtp:3"},
    ),
    Case(
        id="llama-3-8b-g5-vllm-dflash",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="vllm",
        asked=SHORT | {"draft": "dflash:org/head"},
        draft=dflash_of_speculators(LLAMA_3_8B),
    ),
    Case(
        id="llama-3-8b-g5-vllm-0.32-peagle",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="vllm",
        asked=SHORT | {"draft": "peagle:org/head", "container_version": "0.32.0"},
        draft=peagle_of_speculators(LLAMA_3_8B),
    ),
    Case(
        id="llama-3-8b-g5-lmi-ngram-gpu",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="lmi",
        asked=SHORT | {"draft": "ngram_gpu:5"},
    ),
    Case(
        id="tiny-local-vllm-asked",
        model=model_of(TINY),
        instance=LOCAL_CPU,
        asked={"served_name": "chat", "max_batch": 4, "max_total_tokens": 256},
    ),
    Case(
        id="tiny-local-vllm-ngram",
        model=model_of(TINY),
        instance=LOCAL_CPU,
        asked={"draft": "ngram:4", "max_prefill_tokens": 512},
    ),
    Case(
        id="tiny-local-vllm-options",
        model=model_of(TINY),
        instance=LOCAL_CPU,
        asked={"engine_options": {"enable-prefix-caching": "false", "seed": "7"}},
    ),
    Case(id="tiny-g5.xlarge-lmi", model=model_of(TINY), instance="ml.g5.xlarge", family="lmi"),
    Case(id="tiny-g4dn.xlarge-vllm", model=model_of(TINY), instance="ml.g4dn.xlarge"),
    Case(id="gemma-2-2b-g4dn.xlarge-vllm", model=GEMMA, instance="ml.g4dn.xlarge"),
    Case(id="gemma-2-2b-g6-sglang", model=GEMMA, instance="ml.g6.xlarge", family="sglang"),
    Case(id="gemma-2-2b-g5-tgi", model=GEMMA, instance="ml.g5.xlarge", family="tgi"),
    Case(id="qwq-g5-vllm", model=QWQ, instance="ml.g5.2xlarge", family="vllm", asked=SHORT),
    Case(
        id="qwq-g5-lmi-16",
        model=QWQ,
        instance="ml.g5.12xlarge",
        family="lmi",
        asked=SHORT | {"container_version": "16"},
    ),
    Case(id="qwq-g6-sglang", model=QWQ, instance="ml.g6.12xlarge", family="sglang", asked=SHORT),
    Case(id="qwen-2-7b-g5-vllm", model=QWEN, instance="ml.g5.2xlarge", family="vllm"),
    Case(id="qwen-2-7b-g5-lmi", model=QWEN, instance="ml.g5.12xlarge", family="lmi"),
    Case(
        id="qwen-2-7b-g5-tgi-mounted",
        model=QWEN,
        instance="ml.g5.12xlarge",
        family="tgi",
        asked=MOUNTED,
    ),
    Case(id="qwen-2-7b-g6-sglang", model=QWEN, instance="ml.g6.12xlarge", family="sglang"),
    Case(
        id="qwen-2-7b-inf2-neuron",
        model=QWEN,
        instance="ml.inf2.48xlarge",
        family="neuron",
        asked=SHORT,
    ),
    Case(id="llama-3-8b-g5.xlarge-vllm", model=LLAMA_8B, instance="ml.g5.xlarge"),
    Case(id="llama-3-8b-g5.12xlarge-lmi", model=LLAMA_8B, instance="ml.g5.12xlarge", family="lmi"),
    Case(id="llama-3-8b-p4d-lmi", model=LLAMA_8B, instance="ml.p4d.24xlarge", family="lmi"),
    Case(id="llama-3-8b-c7i.8xlarge-vllm", model=LLAMA_8B, instance="ml.c7i.8xlarge"),
    Case(
        id="llama-3-8b-g5.xlarge-contradiction",
        model=LLAMA_8B,
        instance="ml.g5.xlarge",
        asked={"max_input_tokens": 9000, "max_total_tokens": 8500, "tp_degree": 2},
    ),
    Case(
        id="llama-3-8b-g5-vllm-mounted",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="vllm",
        asked=MOUNTED,
    ),
    Case(
        id="llama-3-8b-g5-lmi-mounted",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="lmi",
        asked=MOUNTED,
    ),
    Case(
        id="llama-3-8b-g5-vllm-eagle3",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="vllm",
        asked={"draft": "eagle3:org/eagle3"},
        draft=EAGLE3,
    ),
    Case(
        id="llama-3-8b-g5-lmi-eagle3",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="lmi",
        asked={"draft": "eagle3:org/eagle3", "speculative_tokens": 5},
        draft=EAGLE3,
    ),
    Case(
        id="llama-3-8b-g5-lmi-eagle3-mounted",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="lmi",
        asked={"draft": "eagle3:org/eagle3"} | MOUNTED,
        draft=EAGLE3,
    ),
    Case(
        id="llama-3-8b-g5-sglang-eagle3",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="sglang",
        asked={"draft": "eagle3:org/eagle3"},
        draft=EAGLE3,
    ),
    Case(
        id="llama-3-8b-g5-lmi-draft-model",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="lmi",
        asked={"draft": "org/llama-68m"},
        draft=SMALL,
    ),
    Case(
        id="llama-3-8b-g5-vllm-draft-model",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="vllm",
        asked={"draft": "org/llama-68m"} | MOUNTED,
        draft=SMALL,
    ),
    Case(
        id="llama-3-8b-g5-vllm-medusa",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="vllm",
        asked={"draft": "medusa:org/medusa"},
        draft=LLAMA_MEDUSA,
    ),
    Case(
        id="llama-3-8b-g5-tgi-medusa",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="tgi",
        asked={"draft": "medusa:org/medusa"},
        draft=LLAMA_MEDUSA,
    ),
    Case(
        id="llama-3-8b-g5-tgi-ngram",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="tgi",
        asked={"draft": "ngram:2"},
    ),
    Case(
        id="llama-3-8b-g5-tgi-draft-model",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="tgi",
        asked={"draft": "org/llama-68m"},
        draft=SMALL,
    ),
    Case(
        id="llama-3-8b-g5-vllm-awq",
        model=LLAMA_8B,
        instance="ml.g5.xlarge",
        family="vllm",
        asked={"quantize": "awq"},
    ),
    Case(
        id="llama-3-8b-g5-lmi-awq",
        model=LLAMA_8B,
        instance="ml.g5.xlarge",
        family="lmi",
        asked={"quantize": "awq"},
    ),
    Case(
        id="llama-3-8b-g6-vllm-fp8",
        model=LLAMA_8B,
        instance="ml.g6.12xlarge",
        family="vllm",
        asked={"quantize": "fp8", "kv_dtype": "fp8"},
    ),
    Case(
        id="llama-3-8b-g6-lmi-fp8",
        model=LLAMA_8B,
        instance="ml.g6.12xlarge",
        family="lmi",
        asked={"quantize": "fp8", "kv_dtype": "fp8", "max_prefill_tokens": 4096},
    ),
    Case(id="llama-3-8b-awq-g5-tgi", model=LLAMA_8B_AWQ, instance="ml.g5.xlarge", family="tgi"),
    Case(
        id="llama-3-8b-awq-g5-sglang", model=LLAMA_8B_AWQ, instance="ml.g5.xlarge", family="sglang"
    ),
    Case(
        id="llama-3-8b-g5-lmi-20",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="lmi",
        asked={"container_version": "20"},
    ),
    Case(
        id="llama-3-8b-g5-lmi-14-draft",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="lmi",
        asked={"container_version": "14", "draft": "ngram:4"},
    ),
    Case(
        id="llama-3-8b-g5-vllm-0.32",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="vllm",
        asked={"container_version": "0.32.0", "draft": "ngram:4"},
    ),
    Case(
        id="llama-3-8b-g5-vllm-misspelt",
        model=LLAMA_8B,
        instance="ml.g5.12xlarge",
        family="vllm",
        asked={"engine_options": {"max-num-seq": "4", "block-size": "big"}},
    ),
    Case(
        id="llama-3-8b-inf2-neuron",
        model=LLAMA_8B,
        instance="ml.inf2.48xlarge",
        family="neuron",
        asked=SHORT,
    ),
    Case(
        id="llama-3-8b-inf2-neuron-lmi",
        model=LLAMA_8B,
        instance="ml.inf2.48xlarge",
        family="neuron",
        asked=SHORT | {"container_version": "0.30.0"},
    ),
    Case(
        id="llama-3-8b-trn1-neuron-tgi",
        model=LLAMA_8B,
        instance="ml.trn1.32xlarge",
        family="neuron",
        asked=SHORT | {"container_version": "3.3.6"},
    ),
    Case(
        id="llama-3-8b-inf2-neuron-hf",
        model=LLAMA_8B,
        instance="ml.inf2.24xlarge",
        family="neuron",
        asked=SHORT | {"container_version": "2.26.1"} | MOUNTED,
    ),
    Case(
        id="llama-3-8b-inf2-neuron-awq",
        model=LLAMA_8B,
        instance="ml.inf2.48xlarge",
        family="neuron",
        asked=SHORT | {"quantize": "awq"},
    ),
    Case(
        id="llama-3-70b-g5.12xlarge-lmi", model=LLAMA_70B, instance="ml.g5.12xlarge", family="lmi"
    ),
    Case(id="llama-3-70b-p4d-vllm", model=LLAMA_70B, instance="ml.p4d.24xlarge"),
    Case(
        id="llama-3-70b-p4d-lmi-sharded",
        model=LLAMA_70B,
        instance="ml.p4d.24xlarge",
        family="lmi",
        asked={"load_format": "sharded_state", "tp_degree": 8},
    ),
    Case(
        id="llama-3-70b-p5-vllm-load-auto",
        model=LLAMA_70B,
        instance="ml.p5.48xlarge",
        family="vllm",
        asked={"load_format": "auto"},
    ),
    Case(
        id="llama-3-70b-p5-vllm-fp8",
        model=LLAMA_70B,
        instance="ml.p5.48xlarge",
        family="vllm",
        asked={"quantize": "fp8"},
    ),
    Case(id="llama-3-70b-p5-sglang", model=LLAMA_70B, instance="ml.p5.48xlarge", family="sglang"),
    Case(
        id="llama-3-70b-awq-g5.12xlarge-lmi",
        model=LLAMA_70B_AWQ,
        instance="ml.g5.12xlarge",
        family="lmi",
    ),
    Case(
        id="llama-3-70b-awq-g5.12xlarge-tgi",
        model=LLAMA_70B_AWQ,
        instance="ml.g5.12xlarge",
        family="tgi",
        asked=MOUNTED,
    ),
    Case(id="mixtral-g5.12xlarge-tgi", model=MIXTRAL, instance="ml.g5.12xlarge", family="tgi"),
    Case(
        id="mixtral-p5-vllm-dp-ep",
        model=MIXTRAL,
        instance="ml.p5.48xlarge",
        family="vllm",
        asked=SHORT | {"tp_degree": 2, "dp_degree": 4, "ep": True},
    ),
    Case(
        id="mixtral-p5-sglang-dp-attention",
        model=MIXTRAL,
        instance="ml.p5.48xlarge",
        family="sglang",
        asked=SHORT | {"tp_degree": 1, "dp_degree": 8},
    ),
    Case(
        id="mixtral-p5-lmi-ep",
        model=MIXTRAL,
        instance="ml.p5.48xlarge",
        family="lmi",
        asked=SHORT | {"tp_degree": 4, "ep": True},
    ),
    Case(id="llama-3-70b-4xl40s-vllm", model=LLAMA_70B, instance="4xL40S", family="vllm"),
    Case(
        id="llama-3-70b-2xmi300x-vllm-fp8",
        model=LLAMA_70B,
        instance="2xMI300X",
        family="vllm",
        asked={"quantize": "fp8"},
    ),
    Case(id="mixtral-p4d-vllm", model=MIXTRAL, instance="ml.p4d.24xlarge", family="vllm"),
    Case(
        id="mixtral-awq-g5.12xlarge-vllm",
        model=MIXTRAL_AWQ,
        instance="ml.g5.12xlarge",
        family="vllm",
    ),
    Case(
        id="mixtral-awq-medusa-g5.12xlarge-tgi-seed-004",
        model=MIXTRAL_AWQ,
        instance="ml.g5.12xlarge",
        family="tgi",
        asked={
            "tp_degree": 4,
            "max_input_tokens": 8000,
            "max_total_tokens": 16384,
            "max_prefill_tokens": 16384,
            "draft": "medusa:text-generation-inference/Mixtral-8x7B-Instruct-v0.1-medusa",
            "weights": "mounted",
        },
        draft=MIXTRAL_MEDUSA,
    ),
)

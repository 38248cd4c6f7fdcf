"""What people read of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.accelerators import accelerator_of
from packager.cli.plugins.tables import FAMILIES
from packager.core.errors import PlanRejected
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.parsers import ChosenParser
from packager.core.recipe import CacheStatus, Recipe, Step
from packager.core.stopping import Stopping
from packager.core.techniques import Draft, Quantization, Rejected
from packager.core.units import usd
from packager.estimate.performance.startup import image_of_plan, predict_startup
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.report_plan import (
    PlanPage,
    container_words,
    cost_sentence,
    memory_bar,
    page_document,
    rejection_lines,
)
from tests.golden.cases import CASES
from tests.support.cases import cases, read_tables
from tests.support.headers import facts_of, plan_of
from tests.support.report_values import (
    LLAMA_8B,
    option_on,
    outlook_of,
    page_text,
    plan_html,
    plan_on,
)

TABLES = read_tables(__file__)

PLAN = plan_on("ml.g5.12xlarge", family="lmi", max_batch=8)


@cases("a_container_reads_well_with_and_without_a_version")
def test_a_container_reads_well_without_a_version(version: str, variant: str, words: str) -> None:
    container = ContainerFacts(**TABLES["container"], version=version, variant=variant)

    assert container_words(container) == words


STEP: dict[str, Any] = {"step": "quantize", "tool": "llmcompressor"}
HIT = CacheStatus(**STEP, state="hit", key="ab" * 32, seconds=5400.0)
MISS = CacheStatus(
    **STEP, state="miss", seconds=90.0, installs=True, differs=("/calibration/seed",)
)
QUANTIZE = Recipe((Step(name="quantize", tool="llmcompressor", gives="model"),))
AWQ = Quantization(method="awq", scheme="W4A16", bits=4)
NGRAM = Draft(kind="ngram", speculative_tokens=4)
HALF = plan_on("ml.g5.12xlarge", family="vllm", max_batch=8, tp_degree=2, dp_degree=1)
(SLOTS,) = (case.plan for case in CASES if case.id == "llama-3-8b-inf2-neuron")


PAGES = {
    "no step": PlanPage(plan=PLAN),
    "a step": PlanPage(plan=PLAN, recipe=QUANTIZE),
    "a hit": PlanPage(plan=PLAN, forecasts=(HIT,)),
    "a miss": PlanPage(plan=PLAN, forecasts=(MISS,)),
    "a method alone": PlanPage(plan=replace(PLAN, quantization=AWQ)),
    "a draft": PlanPage(plan=replace(PLAN, draft=NGRAM)),
    "idle": PlanPage(plan=HALF),
    "slots": PlanPage(plan=SLOTS),
}


@cases("the_text_says")
def test_the_text_says(page: str, said: str) -> None:
    assert said in " ".join(page_text(PAGES[page]).split())


@cases("efforts")
def test_a_miss_says_what_it_takes_here_and_costs_elsewhere(
    effort: dict[str, Any], said: str
) -> None:
    where = "ml.g5.2xlarge ($1.52 an hour): the cheapest for the whole job"
    told: dict[str, Any] = {"step": "quantize", "tool": "t", "state": "miss", "where": where}
    miss = CacheStatus(**told, **effort)
    page = PlanPage(plan=PLAN, forecasts=(miss,))

    assert said in " ".join(page_text(page).split())
    assert said.replace("<", "&lt;") in " ".join(plan_html(page).split())
    assert page_document(page)["forecasts"][0]["where_usd"] == effort.get("where_usd")


def test_the_memory_bar_has_every_part_and_is_never_longer_than_the_device() -> None:
    budget = replace(
        PLAN.budget, draft_weights_bytes=PLAN.budget.usable_bytes, draft_kv_bytes=1 << 30
    )
    text = page_text(PlanPage(plan=replace(PLAN, budget=budget)))

    bar = next(line for line in text.splitlines() if line.strip().startswith("["))
    assert len(bar.strip()) == 50
    assert "D draft " in text
    assert "d draft cache" in text


def test_what_was_passed_over_is_told_once() -> None:
    told = Rejected(what="tp 1", code="tp-does-not-fit", reason="needs more", instead="tp 4")
    note = Finding("note", "tp-does-not-fit", "needs more")
    text = page_text(PlanPage(plan=replace(PLAN, rejected=(told,), findings=(note,))))

    assert "  tp 1  needs more; tp 4" in text
    assert text.count("needs more") == 1


def test_the_cost_names_price_band_and_discount() -> None:
    sentence = cost_sentence(PLAN, outlook_of(PLAN, discount=0.26))

    assert sentence.startswith("$7.09/h (published), 26 % off; at ")
    assert sentence.endswith("±48 %")


def test_no_price_is_said_and_not_guessed() -> None:
    plan = replace(PLAN, instance=replace(PLAN.instance, price_usd_hour=None))

    assert cost_sentence(plan, None) == "not known: no price of this instance in the catalog"
    assert "$" not in page_text(PlanPage(plan=plan, outlook=outlook_of(plan)))


def test_the_document_has_what_the_text_shows() -> None:
    document = page_document(PlanPage(plan=PLAN, outlook=outlook_of(PLAN)))

    assert document["predicted"]["error_band"] == 0.479
    assert document["predicted"]["points"][0]["concurrency"] == 1
    assert set(document["predicted"]["points"][0]["usd_per_million"]) == {"F1", "F2", "F3"}
    assert document["rejected"][0]["code"] in ("tp-does-not-fit", "split-slower")


@cases("small_amounts_keep_digits_that_tell_something")
def test_small_amounts_keep_digits_that_tell_something(amount: float, text: str) -> None:
    assert usd(amount) == text


def test_what_to_try_instead_is_listed_by_goal() -> None:
    option = option_on("ml.g5.12xlarge", "latency", family="lmi", tp_degree=4)
    page = PlanPage(plan=PLAN, menu=(("latency", option), ("cost", option)))
    text = page_text(page)

    assert "latency optimized  --family lmi --tp-degree 4  bf16" in text
    assert [entry["goal"] for entry in page_document(page)["to_try"]] == ["latency", "cost"]


def test_names_of_strangers_cannot_steer_the_terminal() -> None:
    hostile = "Llama\x1b[2J\x1b]0;title\x07\u202egnp"
    plan = replace(PLAN, profile=replace(PLAN.profile, architecture=hostile))
    left_out = Finding("note", "files-left-out", "without the reason of the refusal")
    error = PlanRejected((left_out, Finding("error", "served-name", hostile)))

    for text in (page_text(PlanPage(plan=plan)), *rejection_lines(error)):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert "Llama" in text


def test_text_page_and_document_describe_how_the_model_lies_on_the_devices() -> None:
    plan = plan_on("ml.g5.12xlarge", family="vllm", max_batch=8, tp_degree=2)
    page = PlanPage(plan=plan)
    words = "4 devices: TP 2 x 2 copies (data parallel)"

    assert f", {words}\n" in page_text(page)
    assert words[1:] in plan_html(page)
    assert page_document(page)["split"] == TABLES["split"]


def test_a_model_without_attention_is_not_said_to_hold_billions_of_tokens() -> None:
    mamba = replace(PLAN, profile=replace(PLAN.profile, kv_bytes_per_token=0))
    page, shown = PlanPage(plan=mamba), PlanPage(plan=PLAN)

    words = "no KV cache: each request keeps a state of constant size"
    assert words in page_text(page)
    assert words[1:] in plan_html(page)
    assert "tokens of KV cache" in page_text(shown)
    assert "tokens of KV cache" in plan_html(shown)


@cases("a_plan_says_how_many_requests_fit_and_what_happens_to_more")
def test_a_plan_says_how_many_fit_and_what_happens_to_more(family: str, beyond: str) -> None:
    facts = facts_of(LLAMA_8B, "ml.g5.xlarge", family=family)
    plan = make_plan(
        facts, PlannerServices(family=FAMILIES.find(family).make(), accelerator_of=accelerator_of)
    )

    page = PlanPage(plan=plan)
    text, document = " ".join(page_text(page).split()), page_document(page)

    said = (
        f"holds {plan.full_requests} of 8,192 tokens, or {plan.typical_requests} typical of 872; "
        f"{plan.shape.max_batch} are computed at once; more wait"
    )
    assert said in text
    assert beyond in text
    assert document["capacity"]["typical_requests"] == plan.typical_requests
    assert document["capacity"]["full_length_requests"] == plan.full_requests
    assert document["capacity"]["beyond"].endswith(beyond)
    assert "Holds</dt><dd>" in plan_html(page)


def test_a_cache_of_unknown_memory_has_no_figures() -> None:
    model = replace(LLAMA_8B, config={**LLAMA_8B.config, "index_head_dim": 128})
    page = PlanPage(plan=plan_of(model, "ml.g5.xlarge", family="vllm"))

    text, document = " ".join(page_text(page).split()), page_document(page)

    assert "holds not known: the memory of the cache is not; more wait" in text
    assert "not known: how many tokens the KV cache holds (index_head_dim)" in text
    assert document["capacity"]["full_length_requests"] is None
    assert document["capacity"]["typical_requests"] is None
    assert document["memory_per_device"]["kv_tokens_left"] is None


def test_the_bar_of_a_paged_cache_leaves_nothing_free() -> None:
    """The engine takes for its cache whatever the rest leaves: free memory was shown before."""
    assert sum(part.share for part in memory_bar(PLAN).shares) == 1
    assert "free" not in page_text(PlanPage(plan=PLAN))


def test_what_the_engine_reads_answers_with_is_told_with_its_reason() -> None:
    plan = replace(PLAN, tool_parser=ChosenParser(**TABLES["tool_parser"]))

    assert "\ntool calls hermes: the chat template writes <tool_call>\n" in page_text(
        PlanPage(plan=plan)
    )
    assert page_document(PlanPage(plan=plan))["tool_call_parser"] == TABLES["tool_parser"]
    assert page_document(PlanPage(plan=PLAN))["reasoning_parser"] is None


def test_what_the_host_must_have_is_told() -> None:
    page = PlanPage(plan=replace(PLAN, container=replace(PLAN.container, **TABLES["host"])))

    assert (
        "needs NVIDIA driver 580 or later, for CUDA 13.0; on SageMaker InferenceAmiVersion "
        "al2023-ami-sagemaker-inference-gpu-4-1"
    ) in " ".join(page_text(page).split())
    assert page_document(page)["container"]["least_driver"] == "580"


@cases("what_stopping_does_to_requests_is_told", drain_s=None)
def test_what_stopping_does_to_requests_is_told(
    drain_s: int | None, after_s: int, words: str, grace_s: int
) -> None:
    page = PlanPage(plan=replace(PLAN, stopping=Stopping(drain_s=drain_s, after_s=after_s)))

    assert f"stops {words}" in " ".join(page_text(page).split())
    assert page_document(page)["stopping"]["grace_s"] == grace_s
    assert f"<dt>Stops</dt><dd>{words}" in plan_html(page)


def test_a_cold_start_is_in_text_json_and_page() -> None:
    page = PlanPage(plan=PLAN, startup=predict_startup(image_of_plan(PLAN)))

    text, document, html = page_text(page), page_document(page), plan_html(page)

    assert "cold start of a node that has nothing" in text
    assert [node["node"] for node in document["startup"]["nodes"]] == TABLES["nodes"]["names"]
    assert "How long a cold start takes" in html
    assert "<dt>First token</dt>" in html
    assert page_document(PlanPage(plan=PLAN))["startup"] is None

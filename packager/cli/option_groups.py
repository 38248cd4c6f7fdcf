"""Headings of options in `--help-all`, and the options that `--help` of a long command shows.

A command with at most `MOST_SHOWN` options shows all of them in `--help`, in their own order.
"""

from __future__ import annotations

MOST_SHOWN = 16

# heading → options, in the order of `--help-all`; others stand under `Other options`
GROUPS: dict[str, tuple[str, ...]] = {
    "Model and machine": (
        *("--model", "--instance", "--family", "--container-version", "--base", "--request"),
        *("--served-name", "--region", "--trust-root", "--jumpstart", "--catalog", "--name"),
        *("--image", "--model-data", "--platform", "--role-arn"),
    ),
    "Output": (
        *("--output", "-t", "--record", "--from-record", "--request-out", "--figures", "--dry-run"),
        *("--progress", "-q", "--format", "--sparse-base"),
    ),
    "Layout and limits": (
        *("--tp-degree", "--pp-degree", "--dp-degree", "--ep", "--nodes", "--max-batch"),
        *("--max-input-tokens", "--max-total-tokens", "--max-prefill-tokens", "--kv-dtype"),
        *("--dtype", "--gpu-memory-utilization"),
    ),
    "What to plan for": (
        *("--goal", "--workload", "--images", "--ttft-ms", "--tpot-ms", "--goals", "--measured"),
        *("--second-opinion", "--discount", "--requests-per-day", "--usd-per-hour"),
    ),
    "Quantization": (
        *("--quantize", "--quantizer", "--quantize-ignore", "--quantize-layer", "--try-untested"),
        *("--calibration", "--calibration-samples", "--calibration-tokens", "--calibration-seed"),
    ),
    "Quality": (
        *("--evaluate", "--evaluate-samples", "--evaluate-tokens", "--evaluate-seed", "--max-kld"),
        *("--min-top1", "--max-ppl-increase"),
    ),
    "Drafts": ("--draft", "--speculative-tokens"),
    "Adapters": (
        "--adapter",
        "--adapters",
        "--merge-adapter",
        "--max-adapters",
        "--allow-runtime-adapters",
    ),
    "Engine": (
        *("--engine-option", "--load-format", "--tool-call-parser", "--reasoning-parser", "--env"),
        *("--compile", "--no-compile-on-miss"),
    ),
    "Image": (
        *("--weights", "--max-layer-size", "--layer-order", "--compression", "--layer-format"),
        *("--base-files", "--verify", "--sbom", "--no-sbom", "--sbom-base", "--sign"),
        *("--policy", "--no-policy", "--model-key", "--model-signature", "--deny-licence"),
    ),
    "Load": (
        *("--concurrency", "--rate", "--arrivals", "--requests", "--duration", "--warm-up"),
        *("--rounds", "--request-timeout", "--find", "--find-up-to"),
        *(
            "--latency-ms",
            "--min-goodput",
            "--baseline",
            "--history",
            "--data",
            "--endpoint",
            "--input-tokens",
        ),
        *("--input-stddev", "--output-tokens", "--output-stddev", "--ignore-eos"),
        *("--prefix-tokens", "--turns", "--tools", "--stream", "--temperature", "--seed"),
        *("--extra", "--request-template", "--response-field", "--workload-spec", "--tokenizer"),
    ),
    "Search": (
        *("--try", "--candidate", "--vary", "--only", "--budget-measurements", "--budget-usd"),
        *("--budget-time", "--keep-images", "--journal", "--fresh"),
    ),
    "Training": (
        *("--method", "--trainer", "--from", "--layers", "--aux-layers", "--draft-vocab-size"),
        *("--epochs", "--max-steps", "--learning-rate", "--batch-tokens", "--max-tokens"),
        *("--answers", "--answer-tokens", "--samples", "--held-out", "--broken"),
    ),
    "Deployment": (
        *("--namespace", "--kubernetes-version", "--replicas", "--max-replicas"),
        *("--instances", "--min-instances", "--max-instances", "--target-requests", "--scaler"),
        *("--queue-target", "--prometheus", "--monitor", "--prepull", "--surge", "--components"),
        *("--copies", "--update", "--update-wait", "--rollback-alarm", "--pool", "--routing"),
        *("--port", "--host", "--devices", "--grace", "--startup-budget", "--startup-timeout"),
        *("--download-timeout", "--storage", "--llm", "--patch"),
    ),
    "Pods and containers": (
        *("--env-file", "--env-from-secret", "--secret", "--node-selector", "--pull-secret"),
        *("--service-account", "--claim", "--shm-size", "--weights-image", "--writable-root"),
        *("--model-dir", "--draft-dir", "--ami", "--volume-size", "--kms-key", "--subnet"),
        *("--security-group", "--isolated", "--metrics", "--tag", "--capture"),
        *("--capture-percent", "--bandwidth"),
    ),
    "Apply": (
        *("--kubeconfig", "--context", "--force", "--wait", "--timeout", "--smoke", "--bench"),
        *("--through",),
    ),
    "Where steps run": (
        *("--gpus", "--threads", "--executor", "--address", "--no-capacity-check", "--restart"),
        *("--train-option",),
    ),
    "Cache": (
        *("--cache-dir", "--cache-shared", "--require-cached", "--require-signed"),
        *("--trusted-keys", "--signing-key", "--no-cache", "--retry-failed", "--cache-match"),
    ),
    "Registries": ("--insecure-registry", "--ca-file"),
}

# Shown by `--help` of a long command, in this order, behind the options that it cannot do without.
FIRST = (
    *("--model", "--instance", "--output", "-t", "--quantize", "--draft", "--goal", "--workload"),
    *("--max-batch", "--max-total-tokens", "--concurrency", "--requests", "--input-tokens"),
    *("--output-tokens", "--try", "--budget-time", "--epochs", "--from", "--samples"),
    *("--name", "--namespace", "--replicas", "--instances", "--copies", "--port"),
    *("--detach", "--wait", "--smoke", "--listen", "--ui", "--last", "--request"),
    *("--dry-run", "--format"),
)

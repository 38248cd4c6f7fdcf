"""Servers measured under load and from cold starts; candidates compared and chosen.

Others import `assemble`, `commands`, `compare`, `draft_measure`, `export`, `intervals`, `load`,
`merge`, `names`, `options`, `outputs`, `reading`, `report`, `report_page`, `session`, `statistics`,
`tables`, `targets`, `tune`, `vllm_results`, `workload_spec`.
"""

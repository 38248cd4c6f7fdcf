"""Values, errors, findings, documents, files, remote, ports and reports that all rooms use.

Others import `adapters`, `artifact`, `bench`, `bench_setup`, `cached`, `capture`, `catalog`,
`checkpoint`, `command_line`, `deployment`, `devices`, `documents`, `engine_rows`, `errors`,
`events`, `facts`, `fields`, `files`, `findings`, `growing`, `image`, `instance`, `key_options`,
`lock`, `measurement`, `model`, `order`, `parsers`, `pictures`, `plan`, `platforms`, `pooling`,
`ports`, `positions`, `prequantized`, `probes`, `processors`, `quality`, `recipe`, `record`,
`references`, `registry`, `remote`, `reports`, `request`, `samples`, `serving`, `shape`, `share`,
`speculation`, `split`, `startup`, `stopping`, `strict_models`, `suggestions`, `tasks`,
`techniques`, `text`, `tokenizer_files`, `tool`, `training`, `traits`, `tree_manifest`, `trees`,
`tuning`, `units`, `user_catalog`, `validation`, `version`, `versions`, `warmup`, `worker`,
`workload`, `yaml_nodes`, `yaml_values`.
"""

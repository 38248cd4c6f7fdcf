"""Shipped facts, each row with source and date; the user's rows; this machine.

Others import `accelerators`, `compatibility`, `containers`, `drivers`, `engine_layers`, `findings`,
`instances`, `listing`, `machine`, `model_types`, `models`, `neuron`, `offer_file`, `parsers`,
`price_file`, `price_refresh`, `prices`, `registries`, `served_architectures`, `techniques`,
`user_catalog`.
"""

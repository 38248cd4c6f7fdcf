"""Commands of the nine rooms, the composition root, plug-in tables; run, smoke, doctor.

Others import `addons`, `app`, `capture_options`, `choices`, `commands`, `field_options`,
`interrupts`, `lazy`, `options`, `plugins`, `progress`, `run`, `serving`, `shared_options`,
`terminal`, `wiring`.
"""

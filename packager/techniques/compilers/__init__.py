"""Who compiles ahead of time: each module describes the work of one compiler."""

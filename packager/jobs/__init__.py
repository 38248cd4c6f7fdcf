"""Jobs around the line: what a command does beyond one build."""

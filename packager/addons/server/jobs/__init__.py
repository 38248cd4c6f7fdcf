"""Jobs: commands of packager that run in the background and survive their starter."""

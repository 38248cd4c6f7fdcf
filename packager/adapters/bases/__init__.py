"""Where base images come from: registry, layout, Docker Engine, scratch."""

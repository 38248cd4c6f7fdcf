"""Images from values: segments, tar headers, layers, configuration, manifest. No I/O."""

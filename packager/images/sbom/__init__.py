"""What an image is made of, as CycloneDX 1.6, and SPDX 2.3 made of that."""

"""Files of images as their layers describe them: read from headers, never unpacked."""

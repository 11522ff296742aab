"""One compact oracle a family."""

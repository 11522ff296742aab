"""One file a family of worlds."""

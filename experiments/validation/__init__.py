"""Published and analytic values, each held against what this package measures: `simworlds validate`."""

"""Benchmarks: ratios against named rivals in the same run; no test asserts a time."""

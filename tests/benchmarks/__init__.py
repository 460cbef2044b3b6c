"""Benchmarks: how fast, how much memory, how good, always beside a peer and in the same run."""

"""Benchmarks: figures of this machine, each as a ratio or share measured within one call."""

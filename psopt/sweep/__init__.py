"""Sweeps: many runs of one job. What they are is apart from how they are run."""

"""Faults on purpose: what a job survives, tried on virtual workers and on real ranks."""

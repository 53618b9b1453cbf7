"""The seam between schemes and workers, and its two implementations."""

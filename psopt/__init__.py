"""psopt: parallel optimisation methods for PyTorch models, as MPI batch jobs."""

__version__ = "0.1.0"

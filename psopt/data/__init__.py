"""Datasets, importers, and the plan that says which sample is used when."""

from __future__ import annotations

from psopt.data.dataset import Dataset, Split, check, open_dataset
from psopt.data.errors import DataError
from psopt.data.importers import IMPORTERS, import_dataset
from psopt.data.info import info
from psopt.data.plan import BatchPlan, Ticket, TicketBook

__all__ = [
    "IMPORTERS",
    "BatchPlan",
    "DataError",
    "Dataset",
    "Split",
    "Ticket",
    "TicketBook",
    "check",
    "import_dataset",
    "info",
    "open_dataset",
]

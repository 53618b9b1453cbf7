"""Run directories in, a comparison table and plots for a paper out."""

from __future__ import annotations

from psopt.report.build import report
from psopt.report.gantt import parse_window
from psopt.report.runs import ReportError
from psopt.report.sweep_build import report_sweep

__all__ = ["ReportError", "parse_window", "report", "report_sweep"]

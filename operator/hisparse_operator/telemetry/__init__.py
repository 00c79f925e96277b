"""Residency from the engine pods: scraped over the pod network, summed per object."""

from hisparse_operator.telemetry.aggregate import aggregate
from hisparse_operator.telemetry.report import ProgressReport, ResidencyReport
from hisparse_operator.telemetry.scraper import Sample, Scraper

__all__ = ["ProgressReport", "ResidencyReport", "Sample", "Scraper", "aggregate"]

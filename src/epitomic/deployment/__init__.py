"""Writes a trained network to a file that runs without this package, and checks the file: `export_network`."""

from epitomic.deployment.export import Result, export_network
from epitomic.deployment.formats import FORMATS

__all__ = ["FORMATS", "Result", "export_network"]

"""Real datasets, preprocessed as the PBA paper does (section 3.1): German Credit and Adult are shipped, COMPAS loads by path."""

from verifair.datasets.sources import Dataset, adult, compas, german, load, network_path
from verifair.datasets.table import read_table

__all__ = ["Dataset", "adult", "compas", "german", "load", "network_path", "read_table"]

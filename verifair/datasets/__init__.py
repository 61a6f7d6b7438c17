"""Real datasets, preprocessed as the papers do (German Credit, Adult shipped; COMPAS, HMDA by path), and a synthetic one."""

from verifair.datasets.sources import Dataset, adult, compas, german, hmda, load, network_path, synthetic
from verifair.datasets.table import read_table

__all__ = ["Dataset", "adult", "compas", "german", "hmda", "load", "network_path", "read_table", "synthetic"]

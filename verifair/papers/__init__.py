"""The tables and figures of the five papers, reproduced beside the printed ones (`verifair reproduce`).

Each paper has a folder: `printed.py` holds the paper's numbers, `catalog.py` lists every table and figure that can be reproduced
with its function; the other modules compute them, by the systems' public functions.
"""

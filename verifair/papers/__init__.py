"""The tables and figures of the five papers, made again: ours beside the printed ones (`verifair reproduce`).

A paper is a folder: `printed.py` holds the paper's numbers, `catalog.py` names every table and figure that can be made, and what
makes it; the modules beside them make it, from the systems' public functions.
"""

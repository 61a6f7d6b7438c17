"""PBA: persistent bias, robustness bias and their companions, row by row over a table (Ceteris Paribus PBA fairness)."""

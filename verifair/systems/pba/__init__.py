"""PBA: persistent bias, row by row (Ceteris Paribus Persistent-Bias-Aware fairness)."""

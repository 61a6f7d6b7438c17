"""What FGCE is compared with: AReS, GLOBE-CE and FACE, and how much of their advice is feasible."""

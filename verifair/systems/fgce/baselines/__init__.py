"""Methods that FGCE is compared with: AReS, GLOBE-CE, FACE."""

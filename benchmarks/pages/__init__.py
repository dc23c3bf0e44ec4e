"""Writes the tables of `docs/results/` from the committed results; see `write`."""

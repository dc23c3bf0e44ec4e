"""The outer loop, as in the paper: masks are drawn, evaluated, and the probabilities moved."""

"""The inner loop: one model is trained on one packed coreset, ready for `vmap`."""

"""The experiments: one file per experiment, `pbcs_jax.configs` where the package is installed."""

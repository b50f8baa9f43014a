"""Experiments: programs that train with the optimizers of the package. They need `labml` and `scikit-learn`."""

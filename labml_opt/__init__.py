"""PyTorch optimizers whose source is the tutorial."""

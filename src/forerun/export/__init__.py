"""Export: parts of a model as checkpoints that other engines read."""

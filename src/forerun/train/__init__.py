"""Training: models with early exits, drafters for frozen models, and the data for both."""

"""Training: models that can run ahead of themselves, exits for frozen models, and the data for both."""

"""Which draft model to train for a target and a machine: by what a round costs here, not by how well a draft models text."""

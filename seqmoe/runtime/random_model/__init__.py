"""A declared model's whole geometry on random weights, whose routing is replayed: real sizes without a checkpoint."""

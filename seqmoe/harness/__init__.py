"""From declared cells to records: plans, workers, executors, the store, and what is computed from records."""

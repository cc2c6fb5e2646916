"""One small file per model family: where its experts are and what it needs."""

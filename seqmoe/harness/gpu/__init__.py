"""Everything that only a machine with a GPU can check or measure, step by step: ``nox -s gpu``."""

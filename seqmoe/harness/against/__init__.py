"""Benchmarks of two revisions, built side by side and run in turns on this machine, and whether one is slower."""

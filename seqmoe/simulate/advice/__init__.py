"""Advice for one machine and model: which system and settings, how fast it will be, and how sure that is."""

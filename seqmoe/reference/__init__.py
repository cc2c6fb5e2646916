"""The small MoE language model that every machine can run: its recipe, its text, its measured card."""

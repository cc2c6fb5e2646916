"""The paper's claims beside what was observed here: evidence from records, and a verdict for each."""

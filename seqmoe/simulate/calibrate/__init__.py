"""The simulator's constants: fitted to the declared inputs alone, and judged on everything that was held out."""

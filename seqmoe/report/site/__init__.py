"""The site: pages around the figures, how they hang together, and the style and script that each carries inside it."""

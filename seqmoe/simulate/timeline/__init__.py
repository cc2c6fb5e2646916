"""Virtual time: the event loop under a clock of seconds, for machines and models that are not at hand."""

"""Two sets of records beside each other: folders, hosts, revisions or systems, with a verdict for every cell."""

"""Where runs are carried out; each executor takes ordered runs and gives back what was observed."""

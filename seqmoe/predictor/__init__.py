"""Forecasts of expert activations, all behind one protocol."""

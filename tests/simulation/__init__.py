"""Simulation: virtual time, loads, figures."""

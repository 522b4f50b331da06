"""Calculations that several questions share."""

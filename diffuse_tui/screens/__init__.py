"""Screens: arrangements of widgets."""

"""Widgets: each draws one part of a view."""

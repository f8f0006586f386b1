"""The presenter: pure functions from views to lines, rows and sentences. No widget, no clock."""

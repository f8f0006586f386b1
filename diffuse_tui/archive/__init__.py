"""Conversations kept on this machine, in a file of their own, and files that users name."""

"""The terminal app: draws NetworkViews, never touches the network itself."""

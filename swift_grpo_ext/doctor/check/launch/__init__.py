"""What a launch starts: its script is read, nothing of it is run."""

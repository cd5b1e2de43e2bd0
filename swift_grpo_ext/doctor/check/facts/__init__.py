"""Facts that a rule may ask for: `run.Run`, and the sources of its facts."""

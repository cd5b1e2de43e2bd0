"""What a rule may ask: `run.Run`, and what it takes its facts from."""

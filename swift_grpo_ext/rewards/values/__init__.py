"""Values that may stand in an answer's place: a file for each kind, its grammar in the docstring."""

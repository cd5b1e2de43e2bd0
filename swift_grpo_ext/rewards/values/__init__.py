"""What may stand in an answer's place: a file for each kind of value, its grammar in the docstring."""

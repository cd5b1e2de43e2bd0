"""The gold of a row: where it stands, in which coordinate frame, and how answers are compared with it."""

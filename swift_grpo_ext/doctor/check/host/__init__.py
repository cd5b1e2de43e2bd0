"""What ms-swift itself says: the table of its parser and names, and the child process that imports it."""

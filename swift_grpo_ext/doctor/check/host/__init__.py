"""Facts from ms-swift itself: the table of its parser and names, and the child process that imports it."""

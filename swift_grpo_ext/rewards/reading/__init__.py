"""From the text of a completion to the value that it states, in linear time, without rows and rewards.

`answer` finds the answer, `doubt` and `statement` say what of it is asserted, announced and corrected; the
other modules read one kind of value each. Words and signs are tables (`words`, ``tables/*.json``). Each
pattern has an example above it, which a test runs.
"""

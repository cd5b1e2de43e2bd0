"""From the text of a completion to the value that it states, in linear time, without rows and rewards.

`answer` finds the answer, `assertion` says what of it is asserted, `doubt` and `statement` know words of
denial, refusal, announcement and correction; the other modules read one kind of value each. Words and signs
are tables (`words`, ``tables/*.json``). Each pattern has an example above it, which a test runs.
"""

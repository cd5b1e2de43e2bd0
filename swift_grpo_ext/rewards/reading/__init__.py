"""From the text of a completion to the value that it states, in linear time, without rows and rewards.

`answer` finds the answer, `assertion` says what of it is asserted, refused or denied, `statement` how it is
announced and corrected; the other modules read one kind of value each. Words, signs and phrases are tables
(`words`, ``tables/*.json``). Each pattern has an example, beside it or above it, which is run.
"""

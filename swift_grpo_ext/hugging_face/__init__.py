"""Where transformers 4 and 5 differ: the one room that may ask for the release of transformers.

`configs` has the fields of a config and its classes, `generation` what a model is handed while it samples.
Everything outside uses names and forms that both have.
"""

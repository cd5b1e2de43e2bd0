"""Original Ovis2 checkpoints (``AIDC-AI/Ovis2-*``, remote code) as transformers' own class.

From a checkout of this repository: ``python -m examples.convert_ovis2 Ovis2-1B Ovis2-1B-hf``.
"""

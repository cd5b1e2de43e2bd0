"""Kimi-VL and K2.5: nothing tiny, since ms-swift 4.6.0 takes neither with transformers 5."""

from __future__ import annotations

from swift_grpo_ext.models.family import Entry

FAMILY = Entry(stem="kimi", frame="norm1")

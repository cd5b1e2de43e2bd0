"""A model's inputs with their pixels out of the device's memory, whole for whoever reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from torch import Tensor

from swift_grpo_ext.group.vision import Images


class StoredInputs(MutableMapping[str, Tensor]):
    """A model's inputs whose pixels lie in the main memory, those of equal images once.

    Whoever reads the pixels gets all of them, on the device of the tokens.
    """

    def __init__(
        self, text: Mapping[str, Tensor], grids: Mapping[str, Tensor], media: Mapping[str, Images]
    ) -> None:
        self._plain = {**text, **grids}
        self._media = dict(media)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._media:
            return self._plain[name]
        images = self._media[name]
        return images.pixels_of(range(len(images.parts))).to(self._plain["input_ids"].device)

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._media.pop(name, None)
        self._plain[name] = value

    def __delitem__(self, name: str) -> None:
        del (self._media if name in self._media else self._plain)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._plain
        yield from self._media

    def __len__(self) -> int:
        return len(self._plain) + len(self._media)

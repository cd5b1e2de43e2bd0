"""Pure tensor functions over groups of completions. Nothing here imports ms-swift."""

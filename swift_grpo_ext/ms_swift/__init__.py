"""ms-swift's names that the trainer uses, all of them: what to look at when a release of ms-swift moves them.

`shared` is what each of ms-swift's trainers has, Megatron's too; `hf` is its trainer on transformers,
`arguments` what that takes, and `factory` where ms-swift looks both up. `overrides` finds out at construction
whether ms-swift still has what a class of ours overrides.
"""

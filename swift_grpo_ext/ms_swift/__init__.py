"""ms-swift's names that the trainer uses, all of them: what to look at when a release of ms-swift moves them.

`shared` has what all of ms-swift's trainers use, Megatron's too; `hf` its trainer on transformers,
`arguments` that trainer's arguments, and `factory` the table where ms-swift looks both up.
`overrides` checks at construction that ms-swift still has what a class of ours overrides.
"""

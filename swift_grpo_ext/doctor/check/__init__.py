"""``swift-grpo-ext check``: predicts the problems of a launch without running any of it.

The flow, which `command.verdict_of` and `command.check` follow from top to bottom:

1. **script**. `inputs.runs` takes a command line, a configuration file or a plain script. From a script,
   `script` reads the variables and the ``swift`` commands: known words, and `unknown.Unknown` for others.
2. **facts**. Each ``swift rlhf`` becomes a `facts.run.Run`, which is data: arguments as ms-swift's parser
   sees them, variables, folders. More expensive facts are functions of a run, in the files beside: the
   model's sizes and DeepSpeed's file, the first rows, the columns that rewards need.
3. **rules**. Each rule of `rules/` is a function from a run to problems, under ``@rule(id, severity, ...)``;
   ``fault(...)`` makes one from a predicate, for a fault with a fixed text. A rule that needs an unknown
   value stops there, and the value is reported as not checked.
4. **print**. The findings, worst first, and the exit code.
5. **ms-swift itself** is asked last, as it takes ten seconds to import: `host/` runs its argument classes in
   a child process, and `rules.refused` reports their refusals that no rule has reported yet.

`preflight` does the same inside a run of either engine (``SWIFT_GRPO_EXT_PREFLIGHT=only``), with the words
that the shell has expanded: this is exact.
"""

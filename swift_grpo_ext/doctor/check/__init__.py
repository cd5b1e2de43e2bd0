"""``swift-grpo-ext check``: what a launch will do, said before it does it. Nothing of it is run.

The flow, which `command.verdict_of` and `command.check` follow from top to bottom:

1. **script**. `inputs.runs` takes a command line, a configuration file or a plain script, of which
   `script` reads the variables and the ``swift`` commands: words, and `unknown.Unknown` for others.
2. **facts**. Each ``swift rlhf`` becomes a `facts.run.Run`, which is data: arguments as ms-swift's parser
   sees them, variables, folders. What takes more is a function of a run, in the files beside: the
   model's sizes and DeepSpeed's file, the first rows, what rewards need of them.
3. **rules**. Each rule of `rules/` is a function from a run to problems, under ``@rule(id, severity, ...)``;
   ``fault(...)`` makes one of a predicate, for a fault that is always said in the same words. A rule that
   meets a value that is not known ends there, and the value is named.
4. **print**. What was found, worst first, and the exit code.
5. **ms-swift itself** is asked last, for it takes ten seconds to import: `host/` runs its argument classes in
   a child process, and `rules.refused` says what they refuse and no rule has said yet.

`preflight` does the same inside a run of either engine (``SWIFT_GRPO_EXT_PREFLIGHT``), with the words that
the shell has made: it is the exact way.
"""

"""Real trainers, built by the host's own pipeline and not started."""

from swift_grpo_ext import testing


def unstarted_trainer(model, dataset, output, **overrides):
    """Our trainer for a short run."""
    from swift.pipelines.train.rlhf import SwiftRLHF

    class BuildOnly(SwiftRLHF):
        def train(self, trainer):
            return trainer

    overrides = {"reward_funcs": "format", **overrides}
    return BuildOnly(testing.grpo_arguments(model, dataset, output, **overrides)).main()

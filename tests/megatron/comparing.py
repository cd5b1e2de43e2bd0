"""How far two runs are apart, and the limits within which they are equal."""

import torch

LOG_PROBS = 1e-5  # largest difference of a token's log-prob
GRADIENT = 1e-5  # largest norm of a parameter's difference, as a share of its norm
SMALL = 1e-4  # share of the norm of all gradients below which a gradient is rounding
RECURRENT = ("qwen3_5", "qwen3_5_moe")  # computed in double precision, see double.py


def log_prob_difference(step, other):
    """Largest difference of any token's log-prob that both steps have."""
    assert step.keys() == other.keys(), f"other completions: {sorted(step.keys() ^ other.keys())}"
    pairs = [
        (rows[name], other[key][name]) for key, rows in step.items() for name in rows if name in other[key]
    ]
    assert pairs
    return max((a - b).abs().max().item() for a, b in pairs)


def gradient_differences(step, other):
    """Per parameter the norm of the difference over its norm; what is nearly 0 is measured against all gradients."""
    whole = torch.stack([gradient.norm() for gradient in other.values()]).norm().item()
    made = {}
    for name in sorted(step.keys() | other.keys()):
        gradient, expected = (_gradient(run, name, of) for run, of in ((step, other), (other, step)))
        if (
            gradient.shape != expected.shape
        ):  # experts, which checkpoints of transformers keep either way round
            expected = expected.transpose(-1, -2)
        made[name] = (gradient - expected).norm().item() / max(expected.norm().item(), SMALL * whole)
    return made


def _gradient(step, name, other):
    """A parameter's gradient; 0 where it is frozen, which only one engine keeps."""
    return step[name] if name in step else torch.zeros_like(other[name])


def assert_equal(run, other, steps=3, log_probs=LOG_PROBS, gradient=GRADIENT):
    """Log-probs, loss, norm and each parameter's gradient of all steps.

    Returns:
        How far they are apart at most: a token's log-prob, and the gradient of a parameter as a share of its norm.
    """
    assert len(run.logs) == len(other.logs) == steps
    most = {"log_probs": 0.0, "gradient": 0.0}
    for number in range(steps):
        apart = log_prob_difference(run.samples[number], other.samples[number])
        assert apart <= log_probs, f"step {number + 1}: log-probs differ by {apart:.2g}"
        differences = gradient_differences(run.gradients[number], other.gradients[number])
        worst = max(differences, key=differences.get)
        assert differences[worst] <= gradient, (
            f"step {number + 1}: the gradient of {worst} differs by {differences[worst]:.2g} of its norm"
        )
        for name, limit in (("loss", 1e-6), ("grad_norm", 1e-5 * other.logs[number]["grad_norm"])):
            got, expected = run.logs[number][name], other.logs[number][name]
            assert abs(got - expected) <= limit, (
                f"step {number + 1}: {name} {got:.9g}, expected {expected:.9g}"
            )
        most = {
            "log_probs": max(most["log_probs"], apart),
            "gradient": max(most["gradient"], differences[worst]),
        }
    return most

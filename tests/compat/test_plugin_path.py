"""args.json without the paths of our plugin files; tests/e2e/test_after_the_run.py has whole checkpoints."""

from swift_grpo_ext.compat import plugin_path
from swift_grpo_ext.compat.plugin_path import without_ours
from swift_grpo_ext.plugin_files import plugin_file


def test_only_our_files_are_left_out():
    ours = ["/other/place/swift_grpo_ext/plugins/all.py", str(plugin_file("rewards"))]
    theirs = ["my_rewards.py", "/data/plugins/all.py"]
    assert without_ours([*ours, *theirs], "qwen2_5_vl") == theirs
    assert without_ours([*theirs, *ours], None) == theirs
    assert without_ours(theirs, "ovis2_hf") == theirs
    assert without_ours(theirs, "a_template_of_nobody") == theirs


def test_the_patch_is_needed_and_goes_on_and_off(prove):
    proof = prove(plugin_path.fix)
    proof.drift()
    proof.on()
    proof.off()

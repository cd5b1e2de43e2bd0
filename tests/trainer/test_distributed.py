"""One rank fails, all ranks end: with processes that talk over gloo and do what a trainer does."""

import pytest

from swift_grpo_ext.testing.run import free_port
from swift_grpo_ext.trainer import distributed as failure
from tests.forked import fork_ranks

RANK = """
import sys, time
import torch, torch.distributed as dist
from swift_grpo_ext.trainer.distributed import ending_together

class Host:
    def train(self, fails):
        for step in range(3):
            if dist.get_rank() == 1 and step == 1 and fails != "none":
                if fails == "exit":
                    sys.exit("the reward gave up")
                raise ValueError(f"broken at step {step}")
            dist.all_reduce(torch.ones(1))
        return "done"

class Trainer(Host):
    def train(self, fails):
        with ending_together():
            return super().train(fails)

dist.init_process_group("gloo")
print(Trainer().train(sys.argv[1]))
dist.destroy_process_group()
"""


def start(tmp_path, fails):
    (tmp_path / "rank.py").write_text(RANK)
    ended = fork_ranks(tmp_path / "rank.py", [fails], ranks=3, timeout=200)
    return ended.codes, ended.written


@pytest.mark.two_ranks
@pytest.mark.parametrize(("fails", "words"), [("raise", "ValueError: broken at step 1"), ("exit", "gave up")])
def test_the_others_end_with_the_first_traceback_in_their_log(tmp_path, fails, words):
    codes, said = start(tmp_path, fails)
    assert all(code == 1 for code in codes)
    for rank in (0, 2):
        assert f"rank 1 failed, so rank {rank} ends too" in said[rank]
        assert words in said[rank]
    assert words in said[1]
    assert "rank 1 failed" not in said[1]


@pytest.mark.two_ranks
def test_nothing_happens_when_nobody_fails(tmp_path):
    codes, said = start(tmp_path, "none")
    assert codes == [0, 0, 0]
    assert all(text.strip().endswith("done") for text in said)


@pytest.mark.parametrize("variables", [{}, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "closed"}])
def test_without_a_store_training_goes_on_and_says_so(monkeypatch, capsys, variables):
    monkeypatch.setattr(failure.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(failure.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(failure, "CONNECT_SECONDS", 1)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value if value != "closed" else str(free_port()))
    done = []
    with failure.ending_together():
        done.append("training")
    assert done
    assert "a failing rank is not announced" in capsys.readouterr().err

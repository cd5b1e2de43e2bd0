"""Where time goes."""

from contextlib import contextmanager

import pytest

from swift_grpo_ext.watch.phases import Phases


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@contextmanager
def within(phases, name):
    phases.enter(name)
    yield
    phases.leave(name)


def test_inner_phases_do_not_count_for_outer_ones(clock):
    phases = Phases(clock)
    clock.now = 1
    with within(phases, "backward"):
        clock.now = 3
        with within(phases, "forward"):
            assert phases.now.phase == "forward"
            clock.now = 7
        assert (phases.now.phase, phases.now.since) == ("backward", 7)
        clock.now = 8
    phases.rest_in("between")
    clock.now = 10
    assert phases.drain() == {"start": 1, "backward": 3, "forward": 4, "between": 2}
    assert phases.longest == {"start": 1, "backward": 2, "forward": 4, "between": 2}
    clock.now = 11
    assert phases.drain() == {"between": 1}


class Event:
    """A GPU's event, whose work is done later than it was asked for."""

    def __init__(self, at):
        self.at = at

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return 1000 * (later.at - self.at)


def test_a_gpu_tells_its_own_time(clock):
    events = map(Event, (1, 7, 8, 11, 12, 14))
    phases = Phases(clock, lambda: next(events))
    for phase in ("forward", "backward"):
        with within(phases, phase):
            clock.now += 1
    assert phases.drain() == {"forward": 6, "start": 2, "backward": 3}
    assert phases.longest["forward"] == 1, "the watchdog looks at the process"
    assert phases.drain() == {"start": 2}

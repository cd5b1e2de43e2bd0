"""Tests that share a fixture of their module run on one worker: else each worker sets it up."""

import os

import pytest


@pytest.fixture(scope="module")
def dear():
    return None


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one worker")
def test_a_module_with_a_shared_fixture_is_one_group(dear, request):
    assert request.node.nodeid.endswith(f"@{__name__}")

"""What the benchmarks sum is what they say."""

import runpy

import pytest

from repo.sources import ROOT

sizes = runpy.run_path(str(ROOT / "benchmarks/support/gradient_sets.py"))["sizes"]


@pytest.mark.parametrize(
    "name, tensors, parameters",
    [
        ("vgg16", 32, 138_357_544),
        ("resnet50", 214, 25_583_592),
        ("bert-base", 199, 109_482_240),
        ("bert-large", 391, 335_141_888),
        ("64m", 1, 2**24),
        ("4k", 1, 2**10),
    ],
)
def test_a_set_has_the_models_trainable_parameters(name, tensors, parameters):
    assert len(sizes(name)) == tensors
    assert sum(sizes(name)) == 4 * parameters


def test_a_quarter_of_a_set_has_as_many_tensors():
    assert len(sizes("resnet50/4")) == len(sizes("resnet50"))
    assert sum(sizes("vgg16/4")) == pytest.approx(138_357_544, rel=1e-4)


def test_an_unknown_set_is_refused():
    with pytest.raises(SystemExit, match="alexnet"):
        sizes("alexnet")

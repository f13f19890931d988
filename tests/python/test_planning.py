"""`bps plan`: what it prints, and what a mistake is told."""

import math
import sys

import keras
import pytest

from tf_byteps import model_sizes, planning
from tf_byteps.cli import main


def parameters(model):
    return sum(map(math.prod, model_sizes.MODELS[model]()))


def test_models_have_their_sizes():
    assert parameters("vgg16") == 138_357_544
    assert parameters("resnet50") == 25_583_592
    assert parameters("bert-base") == 109_482_240
    assert parameters("bert-large") == 335_141_888


@pytest.mark.parametrize("name, model", [("vgg16", "VGG16"), ("resnet50", "ResNet50")])
def test_gradients_come_in_the_order_of_the_variables_in_keras(name, model):
    variables = getattr(keras.applications, model)(weights=None).trainable_variables
    assert model_sizes.MODELS[name]() == [tuple(v.shape) for v in variables]


def test_a_plan_is_printed(capsys):
    assert main(["plan", "resnet50", "-n", "4", "-s", "2", "--bandwidth", "500"]) == 0
    out = capsys.readouterr().out
    assert "214 tensors, 102.3 MB of gradients a worker; 4 workers, 2 dedicated" in out
    lines = {line[:44].strip(): line[44:].split() for line in out.splitlines()}
    unit = 4 * parameters("resnet50") / 62.5e6  # M / B
    expected = {
        "push-pull, at the bound": 1.2,
        "ring all-reduce of the workers": 1.5,
    }
    for what, seconds in expected.items():
        assert float(lines[what][0]) == pytest.approx(seconds * unit, abs=1e-4)
    placed = float(lines["push-pull, as placed"][0])
    assert 1.2 * unit - 1e-4 <= placed < 1.03 * 1.2 * unit
    assert float(lines["with one more server of 500 Mbit/s"][0]) < placed
    # Each host's row adds up.
    rows = [line.split() for line in out.splitlines() if "500" in line][:6]
    assert sum(float(row[3]) for row in rows) == pytest.approx(102.3, abs=0.1)
    assert max(float(row[5]) for row in rows) == placed


def test_saved_models_and_weights(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(5),
            keras.layers.BatchNormalization(),
        ]
    )
    model.compile("adam", "mse")
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        sizes = [size for _, size, _ in planning.read_model(str(tmp_path / name))]
        assert sizes == [60, 20, 20, 20]
    model.save_weights(tmp_path / "m.weights.h5")
    sizes = [s for _, s, _ in planning.read_model(str(tmp_path / "m.weights.h5"))]
    # With the moving mean and variance, which nobody trains.
    assert sorted(sizes) == [20] * 5 + [60]


def test_one_worker_has_nothing_to_send(capsys):
    assert main(["plan", "400,80", "-n", "1", "--bandwidth", "1"]) == 0
    assert "push-pull, as placed                          0.0000" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["vgg16", "-n", "2"], "--bandwidth must be a positive number of Mbit/s"),
        (["vgg16", "-n", "2", "--bandwidth=-1"], "Received: '-1'"),
        (["vgg16", "-n", "2", "--bandwidth", "1,2,3"], "2 of them with commas"),
        (["vgg16", "-n", "2", "--bandwidth", "1,x"], "Received: '1,x'"),
        (["vgg16", "-n", "0", "--bandwidth", "1"], "-n must be from 1 to"),
        (["vgg16", "-n", "1", "-s", "-1", "--bandwidth", "1"], "-s must be from 0 to"),
        (["vgg17", "-n", "2", "--bandwidth", "1"], "expected vgg16, resnet50"),
        (["0,0", "-n", "2", "--bandwidth", "1"], "more than 0 bytes"),
        (["1,,2", "-n", "2", "--bandwidth", "1"], "sizes in bytes with commas"),
        ([__file__, "-n", "2", "--bandwidth", "1"], "expected a model or weights"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, words, capsys):
    assert main(["plan", *arguments]) == 1
    err = capsys.readouterr().err
    assert err.startswith("bps plan: ") and err.count("\n") == 1, err
    assert words in err
    assert "Received: " in err


def test_a_plot(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "plan.svg"
    planning.run_plan("400000,80", 4, 1, "100", str(file))
    assert "dedicated servers" in file.read_text()


def test_a_plot_without_matplotlib_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = ["80", "-n", "2", "--bandwidth", "1", "--plot", "plan.png"]
    assert main(["plan", *arguments]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err

"""Options and environment: precedence, and what a mistake is told."""

import pytest

import tf_byteps
from tf_byteps import config
from tf_byteps.errors import ConfigError


def test_argument_beats_environment_beats_default():
    environment = {"TF_BYTEPS_PARTITION_BYTES": "1000"}
    assert config.resolve({}, {}).partition_bytes == 0
    assert config.resolve({}, environment).partition_bytes == 1000
    assert config.resolve({"partition_bytes": 64}, environment).partition_bytes == 64


@pytest.mark.parametrize(
    "environment, words",
    [
        ({"TF_BYTEPS_PARTITON_BYTES": "1"}, "did you mean TF_BYTEPS_PARTITION_BYTES?"),
        ({"TF_BYTEPS_PARTITION_BYTES": "15"}, "an integer from 16 to 2147483648, or 0"),
        ({"TF_BYTEPS_PARTITION_BYTES": "4k"}, "Received: '4k'"),
        ({"TF_BYTEPS_FAILURE_TIMEOUT": "nan"}, "a number from 0.1 to 3600"),
        ({"TF_BYTEPS_FAILURE_TIMEOUT": "-1"}, "TF_BYTEPS_FAILURE_TIMEOUT must be"),
        ({"TF_BYTEPS_LOG_LEVEL": "loud"}, "one of debug, info, warning, error"),
        ({"TF_BYTEPS_STALL_LIMIT": "1"}, "stall_limit must not be less"),
        ({"TF_BYTEPS_REDUCE_THREADS": ""}, "Received: ''"),
    ],
)
def test_a_bad_variable_is_named_with_what_is_allowed(environment, words):
    with pytest.raises(ConfigError) as err:
        config.resolve({}, environment)
    assert words in str(err.value)
    assert next(iter(environment)).split("_")[2] in str(err.value).upper()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"partition_bytes": 8}, "Options.partition_bytes must be an integer from 16"),
        ({"partition_bytes": 16.5}, "Received: 16.5"),
        ({"credit_bytes": True}, "Received: True"),
        ({"log_level": 3}, "Received: 3"),
        ({"failure_timeout": "soon"}, "Received: 'soon'"),
    ],
)
def test_options_validate_themselves(options, words):
    with pytest.raises(ConfigError) as err:
        tf_byteps.Options(**options)
    assert words in str(err.value)


def test_options_are_frozen_and_cover_the_table():
    options = tf_byteps.Options(partition_bytes=64)
    with pytest.raises(AttributeError):
        options.partition_bytes = 128
    fields = {field.name for field in config.FIELDS if field.option}
    assert fields == set(tf_byteps.Options.__dataclass_fields__)


def test_an_unknown_option_is_named():
    with pytest.raises(ConfigError, match="did you mean partition_bytes"):
        config.resolve({"partition_byte": 1}, {})


def test_a_secret_is_not_described():
    settings = config.resolve({"job_token": "secret", "reduce_threads": 2}, {})
    assert config.describe(settings) == "reduce_threads=2"

"""The registry: names, options and values that do not fit."""

import pytest

from epitomic.models import create_model
from epitomic.support.errors import UserError


def test_what_the_name_says_is_no_option() -> None:
    for name in ("epitomic_small", "maxout_small", "epitomic"):
        with pytest.raises(UserError, match=r"option of model .* 'normalize'"):
            create_model(name, normalize=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image_size": 7}, "from 8 to 64"),
        ({"image_size": 65}, "from 8 to 64"),
        ({"num_classes": 0}, "num_classes"),
        ({"dropout": 1.0}, "dropout"),
        ({"conv_dropout": -0.1}, "conv_dropout"),
        ({"width": 0.0}, "width"),
        ({"batch_nrom": True}, "did you mean 'batch_norm'"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_model("epitomic_small", **arguments)  # type: ignore[arg-type]


def test_unknown_model() -> None:
    with pytest.raises(UserError, match="did you mean 'epitomic_small'"):
        create_model("epitomic_smal")

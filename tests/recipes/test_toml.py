import tomllib

from hypothesis import given
from hypothesis import strategies as st

from lightbert.recipes.toml import to_toml

KEYS = st.text(st.characters(codec="utf-8"))
SINGLE = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
)
VALUES = st.recursive(
    SINGLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_values_survive_a_round_trip_through_toml(values):
    assert tomllib.loads(to_toml(values)) == values


def test_single_values_come_before_tables():
    values = {"grid": {"optimizer": {"eps": [1e-6]}}, "steps": 3, "change": {}, "phases": [{"length": 512}]}
    assert to_toml(values) == (
        "steps = 3\nphases = [{ length = 512 }]\n\n[grid.optimizer]\neps = [1e-06]\n\n[change]\n"
    )

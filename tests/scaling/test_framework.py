"""Saved states: what is unknown or missing is named."""

import pytest

from fp16sim.scaling.framework import check_entries


def test_entries():
    check_entries({"a": 1, "b": 2}, ("a", "b"), "X", "state_dict()")
    check_entries({}, (), "X", "nothing")
    with pytest.raises(ValueError, match="unknown entry 'scal' of a X state: did you mean 'scale'"):
        check_entries({"scal": 1}, ("scale",), "X", "state_dict()")
    with pytest.raises(ValueError, match="a X state without 'scale': pass all of state_dict"):
        check_entries({}, ("scale",), "X", "state_dict()")
    with pytest.raises(ValueError, match="scale='8' in a X state: a number stands there"):
        check_entries({"scale": "8"}, ("scale",), "X", "state_dict()")
    with pytest.raises(ValueError, match="scale=None in a X state"):
        check_entries({"scale": None}, ("scale",), "X", "state_dict()")
    with pytest.raises(ValueError, match="it has none"):
        check_entries({"scale": 1}, (), "X", "nothing")

"""Runs the tests of test_torch.py with libcontinuo_torch.so built against Debian's libtorch 1.13, which is three years
older, was built by others and uses other libraries. The installed PyTorch saves the models. Only where bits are
compared with that PyTorch may the last digit differ.

Skipped if libtorch-dev was not installed when the programs were built. CONTINUO_TORCH_OTHER names another library, such
as a copy of build/release/bin/libcontinuo_torch-2.12.so to which patchelf --set-rpath has told an installed PyTorch 2.12."""

import os
import pathlib

import numpy as np
import pytest

from models import BIN
# pylint: disable=unused-import
from test_torch import (  # noqa: F401
    Lstm, inputs, lstm, reference, step,
    test_a_rows_fault_is_nobody_elses, test_a_thousand_sequences_in_any_order_and_in_two_servers,
    test_a_wrong_declaration_is_refused_at_registration, test_an_empty_tensor_and_another_rank,
    test_an_operator_that_libtorch_does_not_know, test_batches_of_any_size_agree,
    test_describe_shows_what_a_batch_costs, test_deterministic_answers_do_not_depend_on_neighbours,
    test_each_sequence_has_its_own_state, test_nan_is_a_value, test_requests_of_many_rows,
    test_state_in_attributes_is_each_sequences_own, test_states_of_open_size_grow_and_run_with_their_like,
    test_unbatched_models_get_their_tensors_as_they_are, test_v2_sequences, test_wrong_requests)
from test_torch_lua import (  # noqa: F401
    test_a_batch_with_declared_state_is_one_run, test_an_exception_in_the_module_fails_its_step_only)
# pylint: enable=unused-import
from waiting import expect

LIBRARY = pathlib.Path(os.environ.get("CONTINUO_TORCH_OTHER",
                                      BIN.parent / "tests" / "torch-system" / "libcontinuo_torch.so")).resolve()
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} was not built (libtorch-dev)")


@pytest.fixture
def server(server):  # pylint: disable=redefined-outer-name
    def start(*models, flags=(), **more):
        return server(*models, flags=["--torch-library", LIBRARY, *flags], **more)
    return start


def test_forked_and_killed_workers_give_the_same_bits(server):
    """This libtorch has a zygote, too. A worker that replaces a dead one gives the same bits."""
    s = server(lstm(torch_="{buckets: [1]}"))
    expect(lambda: (s.describe("lstm")["zygote"] or {}).get("state") == "ready", "the zygote is ready", 30)
    data = inputs(8, 3)
    alone = [step(s, "lstm", "alone", x) for x in data]
    for i, (x, want) in enumerate(zip(data, alone)):
        if i in (3, 5):
            s.kill_worker("lstm")
        assert step(s, "lstm", "killed", x).tobytes() == want.tobytes()
    np.testing.assert_allclose(alone, reference(Lstm().eval(), data), atol=1e-5)
    about = s.describe("lstm")
    assert about["zygote"]["restarts"] == 0

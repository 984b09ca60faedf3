"""What a provider may answer when steps are fused, and which steps nothing reads then."""

import pytest

from ort_sdk.api import EPFail, FusedSteps, FusibleProgram, FusibleStep
from ort_sdk.run.program.lowering.fusion_checks import check_answer, unread_steps

CALLER = 5


def program(shapes_vary: bool = True) -> FusibleProgram:
    """1 → shape 2 → shape 3; 1, 3 → view 4; 4, 2 → 5; 5 → 6, which the caller gets."""
    steps = [((1,), (2,)), ((2,), (3,)), ((1, 3), (4,)), ((4, 2), (5,)), ((5,), (6,))]
    readers = {1: [0, 2], 2: [1, 3], 3: [2], 4: [3], 5: [4], 6: [CALLER]}
    shown = {position: FusibleStep(None, "Op", inputs, outputs) for position, (inputs, outputs) in enumerate(steps)}
    return FusibleProgram(shown, {}, readers, may_compile=True, shapes_vary=shapes_vary)


def view(inputs=(1,), outputs=(4,), repeated=(0, 1), positions=(2,)) -> FusedSteps:
    return FusedSteps(positions, None, inputs, outputs, repeated)


def test_steps_that_nothing_reads_any_more():
    own = program()
    check_answer("EP", own, [view()])
    assert unread_steps([view()], list(own.steps.values()), {6}) == {1}
    whole = view(inputs=(1,), outputs=(5,), positions=(2, 3))
    check_answer("EP", own, [whole])
    assert unread_steps([whole], list(own.steps.values()), {6}) == {0, 1}
    assert unread_steps([whole], list(own.steps.values()), {6, 3}) == set()


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([view(positions=(2, 9))], "each must be one it was shown"),
        ([view(), view()], "each must be one it was shown"),
        ([view(repeated=(1, 0))], "repeats steps"),
        ([view(repeated=(0, 3))], "repeats steps"),
        ([view(repeated=(2,))], "repeats steps"),
        ([view(inputs=(7,))], "have no inputs"),
        ([view(outputs=(3,))], "reads value 4"),
        ([view(positions=(0, 4), inputs=(1, 5), outputs=(2, 6), repeated=())], "step 1 reads value 2"),
    ],
)
def test_answers_that_do_not_keep_the_program(answers, text):
    with pytest.raises(EPFail, match=text):
        check_answer("EP", program(), answers)


def test_repeating_is_for_shapes_that_vary():
    check_answer("EP", program(shapes_vary=False), [view(inputs=(1, 3), repeated=())])
    with pytest.raises(EPFail, match="whose shapes vary"):
        check_answer("EP", program(shapes_vary=False), [view()])

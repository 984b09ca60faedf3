"""What may interrupt a run belongs to the thread that runs it."""

import threading

from ort_sdk.run.executor import RunControl, RunScope, current


def test_runs_on_other_threads_leave_a_runs_control_alone():
    own, other = RunControl(), RunControl()
    seen = []

    def run():
        seen.append(current.control)
        with RunScope(other):
            seen.append(current.control)

    with RunScope(own):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert current.control is own
    assert seen[0] is not own
    assert seen[1] is other
    assert current.control is not own

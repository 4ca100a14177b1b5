import os
import signal

import pytest

from meshwright.cli.interrupts import remembered


def test_an_interrupt_that_was_swallowed_is_raised_again_at_the_next_check():
    with remembered() as check:
        check()
        try:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10_000):  # the signal is handled between two instructions
                pass
        except KeyboardInterrupt:
            pass  # as a library's destructor would
        with pytest.raises(KeyboardInterrupt):
            check()


def test_the_handler_of_before_is_back_after_the_block():
    before = signal.getsignal(signal.SIGINT)
    with remembered():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_ignores_interrupts_goes_on_ignoring_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with remembered() as check:
            os.kill(os.getpid(), signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, before)

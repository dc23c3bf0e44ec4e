"""LAPACK on one thread, and afterwards as before."""

import threadpoolctl

from pbcs_jax.compute import blas


def threads():
    found = threadpoolctl.threadpool_info()
    return [one["num_threads"] for one in found if one["user_api"] == "blas"]


def test_one_thread_within_and_as_before_afterwards():
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        with blas.one_thread():
            assert threads() and set(threads()) == {1}
        assert threads()[: len(before)] == before

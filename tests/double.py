"""A plugin file of a run: from here on it computes in double precision, of a checkpoint of `double_copy`."""

from precision import in_float64

entered = in_float64()  # for as long as the process lives
entered.__enter__()

"""The pages of docs/ that are made from the code, and tests of the whole site.

`python -m tests.docs` writes the pages. `pages.py` renders them from signatures, docstrings and the
table of errors; `advice.py` has the sentences that the code lacks. `spark_options.py`
renders tables of docs/spark.md, `broker_lines.py` the matrix of lines. A test compares the files
with what would be written, so a page can't be older than the code.
"""

import pytest

pytestmark = pytest.mark.heavy
